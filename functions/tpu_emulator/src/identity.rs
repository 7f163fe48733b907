//! The key that signs identity tokens of emulated VMs, in the emulator's state folder.

use std::path::Path;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use base64::Engine as _;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use sha2::Digest as _;

/// Lifetime of a token, as Google's.
const LIFETIME_SECS: i64 = 3600;

/// Makes the key unless it is there.
pub(crate) fn ensure_key(file: &Path) -> anyhow::Result<()> {
    if file.exists() {
        return Ok(());
    }
    let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048)?;
    let der: Pkcs8V1Der<'_> = pair.as_der()?;
    let text = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
    let lines: Vec<String> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
    crate::vm::write_atomically(file, pem.as_bytes())?;
    Ok(())
}

fn load(file: &Path) -> anyhow::Result<(EncodingKey, String)> {
    let pem = std::fs::read(file)?;
    let id = hex::encode(&sha2::Sha256::digest(&pem)[..10]);
    Ok((EncodingKey::from_rsa_pem(&pem)?, id))
}

/// A token as the metadata server gives it out: RS256, with these claims, for one audience.
pub(crate) fn sign(file: &Path, identity: &Value, audience: &str, is_full: bool) -> anyhow::Result<String> {
    let (key, id) = load(file)?;
    let now = jiff::Timestamp::now().as_second();
    let mut claims = identity.clone();
    claims["aud"] = json!(audience);
    claims["iat"] = json!(now);
    claims["exp"] = json!(now + LIFETIME_SECS);
    if !is_full && let Some(claims) = claims.as_object_mut() {
        claims.remove("google");
    }
    let header = Header { kid: Some(id), ..Header::new(Algorithm::RS256) };
    Ok(jsonwebtoken::encode(&header, &claims, &key)?)
}

/// The public half as a JWK set.
pub(crate) fn jwks(file: &Path) -> anyhow::Result<Value> {
    let (key, id) = load(file)?;
    let mut jwk = serde_json::to_value(jsonwebtoken::jwk::Jwk::from_encoding_key(&key, Algorithm::RS256)?)?;
    jwk["kid"] = json!(id);
    jwk["use"] = json!("sig");
    Ok(json!({"keys": [jwk]}))
}

//! Identity tokens of an own key, and the server that publishes it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A key that signs tokens.
pub struct TokenKey(LazyLock<KeyPair>);

/// The key that an [`Issuer`] publishes.
pub static KEY: TokenKey = TokenKey(LazyLock::new(pair));
/// A key that nobody publishes.
pub static OTHER_KEY: TokenKey = TokenKey(LazyLock::new(pair));

fn pair() -> KeyPair {
    KeyPair::generate(KeySize::Rsa2048).expect("a key")
}

impl TokenKey {
    /// The token with that header and those claims.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        let mut signature = vec![0; self.0.public_modulus_len()];
        let random = aws_lc_rs::rand::SystemRandom::new();
        self.0.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).expect("a signature");
        format!("{message}.{}", part(signature))
    }

    /// The key set as an issuer publishes it, with its public half under each of these names.
    pub fn key_set(&self, kids: &[&str]) -> Value {
        let public = self.0.public_key();
        let n = part(public.modulus().big_endian_without_leading_zero());
        let e = part(public.exponent().big_endian_without_leading_zero());
        let key = |kid| json!({"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": n, "e": e});
        json!({"keys": kids.iter().map(key).collect::<Vec<_>>()})
    }

    /// The public half, which everyone has.
    pub fn public_der(&self) -> Vec<u8> {
        self.0.public_key().as_der().expect("a public key").as_ref().to_vec()
    }
}

fn part(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Header and claims of a token, without its signature.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", part(header.to_string()), part(claims.to_string()))
}

/// The server that publishes a key.
#[derive(Clone)]
pub struct Issuer {
    /// The published key.
    pub key: Arc<Mutex<&'static TokenKey>>,
    /// Names under which it is published.
    pub kids: Arc<Mutex<Vec<&'static str>>>,
    /// True: it answers 500.
    pub broken: Arc<Mutex<bool>>,
    /// What happens while it is asked, such as that time goes by.
    pub meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    fetches: Arc<AtomicUsize>,
}

/// See [`Issuer::meanwhile`].
pub type Meanwhile = Box<dyn Fn() + Send>;

impl Issuer {
    /// Serves [`KEY`] under the name `k1` on a free port: with the address of the key set.
    pub async fn serve() -> (Self, String) {
        let kids = Arc::new(Mutex::new(vec!["k1"]));
        let issuer = Self {
            key: Arc::new(Mutex::new(&KEY)),
            kids,
            broken: Arc::default(),
            meanwhile: Arc::default(),
            fetches: Arc::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/certs", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(keys).with_state(issuer.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (issuer, url)
    }

    /// How often the key set was asked for.
    pub fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

async fn keys(State(issuer): State<Issuer>) -> (StatusCode, [(&'static str, &'static str); 1], String) {
    issuer.fetches.fetch_add(1, Ordering::SeqCst);
    if let Some(meanwhile) = &*issuer.meanwhile.lock().expect("a lock") {
        meanwhile();
    }
    let cache = [("cache-control", "public, max-age=3600")];
    if *issuer.broken.lock().expect("a lock") {
        return (StatusCode::INTERNAL_SERVER_ERROR, cache, "{}".into());
    }
    let key = *issuer.key.lock().expect("a lock");
    let kids = issuer.kids.lock().expect("a lock");
    (StatusCode::OK, cache, key.key_set(&kids).to_string())
}

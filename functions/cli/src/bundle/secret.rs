//! Files whose names say that they hold a password, a token or a private key.

use std::path::Path;

/// Names of files, in any folder.
const NAMES: [&str; 27] = [
    ".boto",
    ".dockercfg",
    ".env",
    ".envrc",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".vault-token",
    "_netrc",
    "application_default_credentials.json",
    "credentials.json",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "kaggle.json",
    "kubeconfig",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "terraform.tfstate",
];
/// Files that have another meaning outside of their folder.
const PLACES: [(&str, &str); 7] = [
    (".aws", "credentials"),
    (".azure", "accessTokens.json"),
    (".cargo", "credentials.toml"),
    (".docker", "config.json"),
    (".huggingface", "token"),
    (".kube", "config"),
    ("gcloud", "credentials.db"),
];
/// Beginnings of names of JSON files: keys of service accounts, and of OAuth clients.
const JSON_BEGINS: [&str; 4] = ["service-account", "service_account", "serviceaccount", "client_secret"];
const ENDINGS: [&str; 9] = [".env", ".jks", ".kdbx", ".key", ".keystore", ".p12", ".pem", ".pfx", ".ppk"];
/// A form for others to fill in.
const FORMS: [&str; 3] = [".example", ".sample", ".template"];
/// Digits at the end of the name that Google gives a service account's key: `PROJECT-0123456789ab.json`.
const KEY_DIGITS: usize = 12;

/// Whether a file of this name most often holds a secret.
pub(super) fn is_named(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if FORMS.iter().any(|ending| name.ends_with(ending)) {
        return false;
    }
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    let is_placed = PLACES.iter().any(|(above, file)| name == *file && folder == *above);
    let has_ending = ENDINGS.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending));
    NAMES.contains(&&*name) || name.starts_with(".env.") || is_placed || has_ending || is_key(&name)
}

/// A JSON file that is named as a key of a service account is.
fn is_key(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".json") else { return false };
    let is_hex =
        |end: &str| end.len() == KEY_DIGITS && end.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let is_googles = stem.rsplit_once('-').is_some_and(|(project, end)| !project.is_empty() && is_hex(end));
    is_googles || JSON_BEGINS.iter().any(|begin| stem.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_and_forms_for_them_are_none() {
        for name in [
            ".env",
            ".env.local",
            "a/.env.prod",
            "prod.env",
            "id_rsa",
            "x/id_ed25519",
            "tls/server.key",
            "ca.pem",
            ".netrc",
            ".envrc",
            ".npmrc",
            ".pypirc",
            ".aws/credentials",
            "home/.aws/credentials",
            "credentials.json",
            "application_default_credentials.json",
            "service-account.json",
            "service-account-train.json",
            "keys/service_account.json",
            "my-project-0a1b2c3d4e5f.json",
            "kubeconfig",
            ".kube/config",
            ".docker/config.json",
            ".git-credentials",
            "client_secret_1.json",
            ".streamlit/secrets.toml",
        ] {
            assert!(is_named(Path::new(name)), "{name}");
        }
        for name in [
            ".env.example",
            ".env.template",
            "env",
            "id_rsa.pub",
            "keys.py",
            ".pem",
            "monkey",
            "credentials",
            "config.json",
            "config",
            "aws/credentials",
            ".docker/daemon.json",
            "run-0123456789.json",
            "shard-0123456789zz.json",
            "-0a1b2c3d4e5f.json",
            "service-account.json.example",
            "secrets.py",
        ] {
            assert!(!is_named(Path::new(name)), "{name}");
        }
    }
}

//! The bearer token: from `REKINDLE_TOKEN`, from a command, or from gcloud for an https server.

use std::process::Stdio;
use std::sync::Mutex;

use crate::config::Server;
use crate::fault::{Fault, Result};

/// What gcloud users have. It prints a token for the account that is logged in.
const GCLOUD: [&str; 3] = ["gcloud", "auth", "print-identity-token"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// A server on loopback asks for nothing.
    None,
    Given(String),
    Command(Vec<String>),
}

/// Gets a token when the first call needs it, and keeps it for this process.
#[derive(Debug)]
pub(crate) struct Tokens {
    way: Way,
    kept: Mutex<Option<String>>,
}

impl Tokens {
    /// Tokens for a server; `given` is `REKINDLE_TOKEN`.
    pub(crate) fn new(server: &Server, given: Option<String>) -> Self {
        let way = match (given, &server.token_command) {
            (Some(token), _) => Way::Given(token),
            (None, Some(command)) => Way::Command(command.clone()),
            (None, None) if server.url.starts_with("https://") => Way::Command(GCLOUD.map(str::to_owned).to_vec()),
            (None, None) => Way::None,
        };
        Self { way, kept: Mutex::new(None) }
    }

    /// The token; `None` when the server asks for none. `fresh`: the one we had was refused.
    pub(crate) async fn get(&self, fresh: bool) -> Result<Option<String>> {
        let command = match &self.way {
            Way::None => return Ok(None),
            Way::Given(token) => return Ok(Some(token.clone())),
            Way::Command(command) => command,
        };
        let kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        if let Some(token) = kept.filter(|_| !fresh) {
            return Ok(Some(token));
        }
        let token = run(command).await?;
        *self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(token.clone());
        Ok(Some(token))
    }

    /// Where the token comes from, in words; never the token.
    pub(crate) fn told(&self) -> String {
        match &self.way {
            Way::None => "none is sent".to_owned(),
            Way::Given(_) => "REKINDLE_TOKEN".to_owned(),
            Way::Command(words) => format!("`{}`", words.join(" ")),
        }
    }

    /// True if another token could be had by asking again.
    pub(crate) fn can_refresh(&self) -> bool {
        matches!(self.way, Way::Command(_))
    }
}

async fn run(command: &[String]) -> Result<String> {
    let shown = command.join(" ");
    let hint = "log in with `gcloud auth login`, or set REKINDLE_TOKEN, or `token_command` in the configuration file";
    let fault = || Fault::input(format!("cannot get a token with `{shown}`")).next(hint);
    let Some((program, arguments)) = command.split_first() else {
        return Err(Fault::input("`token_command` in the configuration file is empty")
            .next("write it as [\"gcloud\", \"auth\", \"print-identity-token\"], or leave it out"));
    };
    let output = tokio::process::Command::new(program).args(arguments).stdin(Stdio::null()).output().await;
    let output = output.map_err(|error| fault().caused_by(&error))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !text.is_empty() && !text.contains(char::is_whitespace) {
        return Ok(text);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = if complaint.is_empty() { format!("it ended with {}", output.status) } else { complaint };
    Err(fault().because(said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Origin;

    fn server(url: &str, command: Option<&[&str]>) -> Server {
        let token_command = command.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
        Server { url: url.to_owned(), origin: Origin::Given, token_command }
    }

    #[tokio::test]
    async fn loopback_needs_no_token_and_a_given_one_is_taken() {
        let local = server("http://127.0.0.1:1", None);
        assert_eq!(Tokens::new(&local, None).get(false).await.unwrap(), None);
        assert_eq!(Tokens::new(&local, None).told(), "none is sent");
        assert_eq!(Tokens::new(&local, Some("t".into())).told(), "REKINDLE_TOKEN");
        assert_eq!(Tokens::new(&server("https://a", None), None).told(), "`gcloud auth print-identity-token`");
        assert_eq!(Tokens::new(&local, Some("t".into())).get(true).await.unwrap().as_deref(), Some("t"));
        assert_eq!(Tokens::new(&server("https://a", None), None).way, Way::Command(GCLOUD.map(str::to_owned).to_vec()));
    }

    #[tokio::test]
    async fn a_command_is_run_once_until_its_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("echo x >>{0}/runs; wc -l <{0}/runs", folder.path().display());
        let tokens = Tokens::new(&server("https://a", Some(&["sh", "-c", &script])), None);
        assert_eq!(tokens.get(false).await.unwrap().as_deref(), Some("1"));
        assert_eq!(tokens.get(false).await.unwrap().as_deref(), Some("1"));
        assert_eq!(tokens.get(true).await.unwrap().as_deref(), Some("2"));
    }

    #[tokio::test]
    async fn what_the_command_complains_about_is_shown() {
        let tokens = Tokens::new(&server("https://a", Some(&["sh", "-c", "echo not logged in >&2; exit 1"])), None);
        let text = tokens.get(false).await.unwrap_err().text();
        assert!(text.contains("not logged in") && text.contains("REKINDLE_TOKEN"), "{text}");
    }
}

//! Chromium, and what a test does with it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use rekindle_e2e::{LONG, is_ci, say, until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A browser, and the driver that ends with it.
pub(super) struct Browser {
    pub(super) client: Client,
    port: u16,
    _driver: Child,
}

impl Browser {
    /// `None` where Chromium is not installed; with CI that is a failure.
    pub(super) async fn start() -> Result<Option<Self>> {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let mut driver = match driver {
            Ok(driver) => driver,
            Err(error) if !is_ci() => {
                say(&format!("skipped: no chromedriver ({error}); Debian's package is chromium-driver"));
                return Ok(None);
            }
            Err(error) => return Err(error).context("chromedriver (Debian's package chromium-driver)"),
        };
        let mut lines = BufReader::new(driver.stdout.take().context("no output")?).lines();
        let port = loop {
            let line = lines.next_line().await?.context("chromedriver ended")?;
            if let Some((_, port)) = line.rsplit_once("started successfully on port ") {
                break port.trim_end_matches('.').parse::<u16>()?;
            }
        };
        let options = json!({"args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
        ]});
        let capabilities = [("goog:chromeOptions".to_owned(), options)].into_iter().collect();
        let connector = hyper_util::client::legacy::connect::HttpConnector::new();
        let client =
            ClientBuilder::new(connector).capabilities(capabilities).connect(&format!("http://127.0.0.1:{port}")).await;
        let client = client?;
        client
            .update_timeouts(fantoccini::wd::TimeoutConfiguration::new(
                Some(Duration::from_mins(2)),
                Some(Duration::from_mins(1)),
                Some(Duration::ZERO),
            ))
            .await?;
        Ok(Some(Self { client, port, _driver: driver }))
    }

    pub(super) async fn text(&self, css: &str) -> Result<String> {
        Ok(self.client.find(Locator::Css(css)).await?.text().await?)
    }

    /// Waits until an element's text is as wanted. The page redraws under us, so a lost element is looked for again.
    pub(super) async fn sees(&self, css: &str, what: &str, mut is: impl FnMut(&str) -> bool) -> Result<()> {
        until(&format!("the page shows {what} at {css}"), LONG, async || {
            let text = self.text(css).await.unwrap_or_default();
            Ok(is(&text).then_some(()))
        })
        .await
    }

    pub(super) async fn click(&self, css: &str) -> Result<()> {
        until(&format!("{css} can be clicked"), LONG, async || {
            let Ok(element) = self.client.find(Locator::Css(css)).await else { return Ok(None) };
            Ok(element.click().await.ok())
        })
        .await
    }

    pub(super) async fn script(&self, text: &str) -> Result<Value> {
        Ok(self.client.execute(text, Vec::new()).await?)
    }

    pub(super) async fn shot(&self, name: &str) -> Result<()> {
        if let Some(folder) = std::env::var_os("REKINDLE_E2E_SHOTS") {
            std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), self.client.screenshot().await?)?;
        }
        Ok(())
    }

    /// The answer of a script with `await` in it.
    pub(super) async fn wait_for(&self, body: &str) -> Result<Value> {
        Ok(self.client.execute_async(&asynchronous(body), Vec::new()).await?)
    }

    /// Shows one of the page's views, such as `#/fleet`, and waits until it has something to show.
    pub(super) async fn view(&self, hash: &str, what: &str) -> Result<()> {
        self.script(&format!("location.hash = '{hash}'")).await?;
        self.reads(&format!("{what} in {hash}"), |text| text.contains(what)).await
    }

    /// Waits until the view's text is as wanted. By the browser's own word: WebDriver takes long for thousands of lines.
    pub(super) async fn reads(&self, what: &str, mut is: impl FnMut(&str) -> bool) -> Result<()> {
        until(&format!("the page shows {what}"), LONG, async || {
            let text = self.script("return document.getElementById('main').innerText").await?;
            Ok(text.as_str().is_some_and(&mut is).then_some(()))
        })
        .await
    }

    /// Presses a key, wherever the focus is.
    pub(super) async fn press(&self, key: Key) -> Result<()> {
        let value = char::from(key);
        let keys = KeyActions::new("keys".to_owned()).then(KeyAction::Down { value }).then(KeyAction::Up { value });
        Ok(self.client.perform_actions(keys).await?)
    }

    /// What has the focus: its id, action, address or name.
    pub(super) async fn focus(&self) -> Result<String> {
        let at = "const at = document.activeElement; return at.id || at.dataset.action || at.getAttribute('href') || \
                  at.textContent.trim() || at.localName";
        Ok(self.script(at).await?.as_str().unwrap_or_default().to_owned())
    }

    /// `light` or `dark`, as a person has chosen it for everything.
    pub(super) async fn prefers(&self, scheme: &str) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features})).await
    }

    /// A command of Chromium's own protocol.
    pub(super) async fn devtools(&self, command: &str, parameters: &Value) -> Result<()> {
        let session = self.client.session_id().await?.context("no session")?;
        let url = format!("http://127.0.0.1:{}/session/{session}/goog/cdp/execute", self.port);
        let http = reqwest::Client::builder().no_proxy().build()?;
        let answer = http.post(url).body(json!({"cmd": command, "params": parameters}).to_string()).send().await?;
        let status = answer.status();
        ensure!(status.is_success(), "{command}: {status}: {}", answer.text().await?);
        Ok(())
    }
}

/// A script that answers by WebDriver's callback, or with its error's words.
fn asynchronous(body: &str) -> String {
    format!("const done = arguments[0]; (async () => {{ {body} }})().then(done, (error) => done(String(error)));")
}

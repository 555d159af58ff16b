//! The page in a real browser, where there is one: that everything on it can be seen.

#[path = "../../tests/skipped/mod.rs"]
mod skipped;

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::html;
use super::tests::{example, with_figures};

const BROWSER: &str = "/usr/bin/chromium";

/// Looks at the page from inside: what was fetched, what cannot be seen, what lies over something else.
const LOOK: &str = r#"
const seen = { fetched: performance.getEntriesByType("resource").length, hidden: [], outside: [], over: [] };
seen.wide = document.documentElement.scrollWidth > innerWidth;
const box = element => element.getBoundingClientRect();
for (const element of document.querySelectorAll("h1, h2, h3, th, td, li, svg, rect, text")) {
	const { width, height } = box(element);
	if (element.textContent + element.tagName != "TH" && !(width > 0 && height > 0))
		seen.hidden.push(element.outerHTML);
}
for (const svg of document.querySelectorAll("svg")) {
	const whole = box(svg), texts = [...svg.querySelectorAll("text")];
	for (const part of svg.querySelectorAll("rect, text")) {
		const { left, right, top, bottom } = box(part);
		if (left < whole.left - 1 || right > whole.right + 1 || top < whole.top - 1 || bottom > whole.bottom + 1)
			seen.outside.push(part.outerHTML);
	}
	texts.forEach((one, index) => texts.slice(index + 1).forEach(other => {
		const a = box(one), b = box(other);
		if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
			seen.over.push(one.textContent + " and " + other.textContent);
	}));
}
seen.bars = document.querySelectorAll("rect").length;
seen.style = getComputedStyle(document.querySelector(".other")).color != getComputedStyle(document.body).color;
const pre = document.createElement("pre");
pre.id = "seen";
pre.textContent = JSON.stringify(seen);
document.body.append(pre);
"#;

#[test]
fn a_browser_shows_all_of_it() {
    if !std::path::Path::new(BROWSER).exists() {
        skipped::skipped(&format!("{BROWSER} is missing"));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let mut sheet = example();
    sheet.sections[0].rows[0].title =
        "a measure whose name is as long as any that an experiment has".to_owned();
    sheet.sections[0].rows[0].cells[0].text = "112,870,416,681,868.25".to_owned();
    let page = html("memwright compare", &[sheet, with_figures()]);
    let looking = format!("<script>{LOOK}</script></body>");
    fs::write(&file, page.replace("</body>", &looking)).unwrap();
    for width in [500, 1200] {
        let output = Command::new(BROWSER)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--dump-dom",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .arg(format!("--window-size={width},900"))
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join("profile").display()
            ))
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = text
            .split_once("<pre id=\"seen\">")
            .and_then(|(_, rest)| rest.split_once("</pre>"));
        let (seen, _) =
            found.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
        let seen = seen
            .replace("&gt;", ">")
            .replace("&lt;", "<")
            .replace("&amp;", "&");
        let seen: Value = serde_json::from_str(&seen).unwrap();
        for nothing in ["hidden", "outside", "over"] {
            assert!(
                seen[nothing].as_array().unwrap().is_empty(),
                "{width}: {seen}"
            );
        }
        assert_eq!(seen["fetched"], 0, "{width}: {seen}");
        assert_eq!(seen["wide"], false, "{width}: {seen}");
        assert_eq!(seen["style"], true, "{width}: {seen}");
        // Two of the legend in each chart, and one for each value that is drawn.
        assert_eq!(seen["bars"], (2 + 5) + (2 + 2) + (2 + 3), "{width}: {seen}");
    }
}

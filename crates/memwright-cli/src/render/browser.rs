//! Tests the HTML page in a real browser, if one is installed: everything must be readable, also on a phone and on
//! paper.

#[path = "../../tests/skipped/mod.rs"]
mod skipped;

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::render::html;
use crate::sheet::tests::{example, with_figures};
use crate::sheet::value::Value as Measured;

const BROWSER: &str = "/usr/bin/chromium";

/// A script that inspects the page from inside a frame: it counts downloaded resources, and finds elements that are
/// invisible, overlap, lie outside their chart, or are too small to read.
const LOOK: &str = r#"
const seen = { fetched: performance.getEntriesByType("resource").length, hidden: [], outside: [], over: [], small: [] };
seen.width = innerWidth;
seen.wide = document.documentElement.scrollWidth > innerWidth;
seen.cut = [...document.querySelectorAll("table")].filter(table => table.scrollWidth > table.clientWidth + 1).length;
const box = element => element.getBoundingClientRect();
const isHead = element => element.closest("tr.head") && getComputedStyle(element.closest("tr.head")).display == "none";
for (const element of document.querySelectorAll("h1, h2, h3, p, th, td, li, svg, rect, line, text")) {
	const { width, height } = box(element);
	if (element.textContent + element.tagName != "TH" && !isHead(element) && !(width > 0 || height > 0))
		seen.hidden.push(element.outerHTML);
}
for (const svg of document.querySelectorAll("svg")) {
	const whole = box(svg), texts = [...svg.querySelectorAll("text")];
	if (svg.getScreenCTM().a * 12 < 10)
		seen.small.push(svg.outerHTML);
	for (const part of svg.querySelectorAll("rect, line, text")) {
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
seen.bars = document.querySelectorAll("rect.bar").length;
seen.keys = document.querySelectorAll("rect.key").length;
seen.marks = document.querySelectorAll("text.axis").length;
seen.named = getComputedStyle(document.querySelector("td[data-of=before]"), "::before").content.includes("before");
seen.style = getComputedStyle(document.querySelector(".other")).color != getComputedStyle(document.body).color;
const pre = parent.document.createElement("pre");
pre.id = "seen";
pre.textContent = JSON.stringify(seen);
parent.document.body.append(pre);
"#;

/// Returns a page in a frame of this width, because the window of a headless browser cannot be as narrow as a phone's.
fn framed(page: &str, width: usize) -> String {
    let looking = format!("<script>{LOOK}</script></body>");
    let page = page.replace("</body>", &looking);
    let attribute = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!DOCTYPE html><html><body style=\"margin:0\">\
         <iframe style=\"border:0;width:{width}px;height:900px\" srcdoc=\"{attribute}\"></iframe></body></html>"
    )
}

/// Returns the results of inspecting the page in a frame of this width.
fn seen(page: &str, width: usize) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, framed(page, width)).unwrap();
    let output = Command::new(BROWSER)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--dump-dom",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1300,1000",
        ])
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
    serde_json::from_str(&seen).unwrap()
}

#[test]
fn a_browser_shows_all_of_it() {
    if !std::path::Path::new(BROWSER).exists() {
        skipped::skipped(&format!("{BROWSER} is missing"));
        return;
    }
    let mut sheet = example();
    sheet.sections[0].rows[0].title =
        "a measure whose name is as long as any that an experiment has, and then some".to_owned();
    sheet.sections[0].rows[0].cells[0] = Some(Measured::Count(112_870_416_681_868_251));
    sheet.notes = vec![format!("sha256 {}", "0123456789abcdef".repeat(4))];
    let page = html("memwright compare", &[sheet, with_figures()]);
    // The page with its styles for print, in a frame as wide as an A4 sheet without its margins.
    let printed = page.replace("@media print", "@media all");
    for (page, width, is_narrow, is_paper) in [
        (&page, 420, true, false),
        (&page, 1200, false, false),
        (&printed, 680, false, true),
    ] {
        let seen = seen(page, width);
        assert_eq!(seen["width"], width, "{seen}");
        for nothing in ["hidden", "outside", "over", "small"] {
            assert!(
                seen[nothing].as_array().unwrap().is_empty(),
                "{width}: {nothing}: {seen}"
            );
        }
        assert_eq!(seen["fetched"], 0, "{width}: {seen}");
        assert_eq!(seen["wide"], false, "{width}: {seen}");
        assert_eq!(seen["style"], true, "{width}: {seen}");
        // If the screen is too narrow for the table head, each cell contains the name of its column.
        assert_eq!(seen["named"], is_narrow, "{width}: {seen}");
        // No table needs horizontal scrolling, which is impossible on paper.
        if is_narrow || is_paper {
            assert_eq!(seen["cut"], 0, "{width}: {seen}");
        }
        // One chart has the two rows that changed, with both columns. The other chart has a median, and a value that
        // one column lacks.
        assert_eq!(
            (&seen["bars"], &seen["keys"], &seen["marks"]),
            (&(4 + 3).into(), &(2 + 2).into(), &(4 + 4).into()),
            "{width}: {seen}"
        );
    }
}

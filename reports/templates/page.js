"use strict";
/* A page's frame: unpacking, theme, printing. */
var report = (function () {
  var root = document.documentElement;
  var byId = function (id) { return document.getElementById(id); };
  root.classList.add("has-script");

  /* Data that the page holds folded (base64 of gzip), each unfolded once, when it is asked for. */
  var unfolded = {};
  function data(name) {
    if (!unfolded[name]) {
      var bytes = Uint8Array.from(atob(byId("pack-" + name).textContent.trim()), function (char) { return char.charCodeAt(0); });
      unfolded[name] = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
    }
    return unfolded[name];
  }

  /* What is far down the page is drawn when it comes near the window. */
  var waiting = new Map();
  var watcher = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      if (!entry.isIntersecting) { return; }
      watcher.unobserve(entry.target);
      var draw = waiting.get(entry.target);
      waiting.delete(entry.target);
      if (draw) { draw(); }
    });
  }, { rootMargin: "300px" });
  function whenSeen(element, draw) {
    waiting.set(element, draw);
    watcher.observe(element);
  }

  /* Dark and light: as the system says until the reader chooses; the choice is kept where the browser allows it. */
  function stored() {
    try { return localStorage.getItem("benchfarm-theme"); } catch (error) { return null; }
  }
  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function setTheme(theme) {
    root.dataset.theme = theme;
    byId("theme").setAttribute("aria-pressed", String(theme === "dark"));
  }
  if (stored() === "dark" || stored() === "light") { setTheme(stored()); }
  byId("theme").addEventListener("click", function () {
    var theme = isDark() ? "light" : "dark";
    setTheme(theme);
    try { localStorage.setItem("benchfarm-theme", theme); } catch (error) { /* a page from a file may not keep anything */ }
  });
  byId("print").addEventListener("click", function () { window.print(); });
  /* Paper has the comparison, where it is drawn already, and the findings; the rest as it is on the screen. */
  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = Array.from(document.querySelectorAll("details.model-block:not([open]), details#findings:not([open])"))
      .filter(function (part) { return part.querySelector("table"); });
    folded.forEach(function (part) { part.open = true; });
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (part) { part.open = false; });
  });

  /* A link to a folded part of the page opens it. */
  function reveal() {
    var target = location.hash.length > 1 && location.hash.slice(0, 3) !== "#c-" ? byId(location.hash.slice(1)) : null;
    while (target && (target = target.closest("details"))) { target.open = true; target = target.parentElement; }
  }
  addEventListener("hashchange", reveal);
  document.querySelectorAll("nav a[href^='#']").forEach(function (link) { link.addEventListener("click", function () { setTimeout(reveal); }); });
  reveal();

  function element(name, className, text) {
    var made = document.createElement(name);
    if (className) { made.className = className; }
    if (text !== undefined) { made.textContent = text; }
    return made;
  }

  /* HTML that the page holds folded: written and escaped by benchfarm, as the rest of the page. */
  function fragment(html) {
    var made = element("template");
    made.innerHTML = html;
    return made.content;
  }

  function save(name, type, content) {
    var link = element("a");
    link.href = URL.createObjectURL(new Blob([content], { type: type }));
    link.download = name;
    link.click();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
  }

  /* A page over plain HTTP may not use the clipboard by itself: what is marked can be copied there, too. */
  function copy(text) {
    if (navigator.clipboard) { return navigator.clipboard.writeText(text); }
    var area = element("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    return Promise.resolve();
  }

  /* A button says that it has copied, for a while. */
  function copied(button, text) {
    var before = button.textContent;
    copy(text).then(function () {
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = before; }, 2000);
    });
  }
  /* No markup, no link, no mention: tables/escapes.py says it for what Python writes. */
  function word(text) {
    var special = function (found) { return found === "&" ? "&amp;" : found === "<" ? "&lt;" : found === ">" ? "&gt;" : "\\" + found; };
    return text.replace(/\s+/g, " ").replace(/[\\`*_{}\[\]()+!|~$&<>]/g, special).replace(/@(?=\w)|:(?=\/\/)|#(?=\d)/g, function (found) {
      return "&#" + found.charCodeAt(0) + ";<!-- -->";
    });
  }
  function markdown(heads, areNumbers, rows) {
    var rule = areNumbers.map(function (isNumber) { return isNumber ? "---:" : "---"; });
    var lines = [heads.map(word), rule].concat(rows.map(function (row) { return row.map(word); }));
    return lines.map(function (line) { return "| " + line.join(" | ") + " |"; }).join("\n") + "\n";
  }

  return { byId: byId, data: data, whenSeen: whenSeen, element: element, fragment: fragment, save: save, copied: copied, markdown: markdown };
})();

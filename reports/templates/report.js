"use strict";
(function () {
  var root = document.documentElement;
  var byId = function (id) { return document.getElementById(id); };
  root.classList.add("has-script");

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

  /* A case's evidence, in a dialog. Without this script the same links lead to it further down the page. */
  var dialog = byId("dialog");
  function show(id) {
    var source = byId(id);
    if (!source) { return false; }
    var body = byId("dialog-body");
    var content = source.content ? source.content.cloneNode(true) : document.createDocumentFragment();
    if (!source.content) {
      source.childNodes.forEach(function (node) { content.appendChild(node.cloneNode(true)); });
    }
    body.replaceChildren(content);
    byId("dialog-title").textContent = source.dataset.title;
    if (!dialog.open) { dialog.showModal(); }
    dialog.scrollTop = 0;
    return true;
  }
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a.open");
    var isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
    if (link && isPlain && show(link.getAttribute("href").slice(1))) { event.preventDefault(); }
  });
  byId("dialog-close").addEventListener("click", function () { dialog.close(); });
  dialog.addEventListener("click", function (event) { if (event.target === dialog) { dialog.close(); } });
  if (location.hash.indexOf("#c-") === 0) { show(location.hash.slice(1)); }

  /* Sorting: figures by value, the rest as words; rows without a figure stay at the end. */
  function sortValue(row, column, isFigure) {
    var cell = row.cells[column];
    if (!isFigure) { return cell.textContent.trim().toLowerCase(); }
    return cell.dataset.v === "" || cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  }
  var collator = new Intl.Collator(undefined, { numeric: true });
  function compare(a, b, direction) {
    if (a.value === null || b.value === null) { return (a.value === null) - (b.value === null) || a.place - b.place; }
    var order = typeof a.value === "number" ? a.value - b.value : collator.compare(a.value, b.value);
    return direction * order || a.place - b.place;
  }
  function sort(table, column, head) {
    var direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    var isFigure = head.classList.contains("n");
    var body = table.tBodies[0];
    var rows = Array.prototype.map.call(body.rows, function (row, place) {
      return { row: row, place: place, value: sortValue(row, column, isFigure) };
    });
    rows.sort(function (a, b) { return compare(a, b, direction); });
    table.querySelectorAll("thead th").forEach(function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    var sorted = document.createDocumentFragment();
    rows.forEach(function (item) { sorted.appendChild(item.row); });
    body.appendChild(sorted);
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append.apply(button, Array.from(head.childNodes));
      head.append(button);
      button.addEventListener("click", function () { sort(table, column, head); });
    });
  });

  /* Searching and filtering the big table. */
  var form = byId("filter");
  if (form) {
    var table = byId("results");
    var rows = Array.from(table.tBodies[0].rows);
    var texts = null;
    var filter = function () {
      var words = byId("filter-text").value.toLowerCase().split(/\s+/).filter(Boolean);
      var status = byId("filter-status").value;
      var real = byId("filter-real");
      if (!texts) { texts = new Map(rows.map(function (row) { return [row, row.textContent.toLowerCase()]; })); }
      var shown = 0;
      rows.forEach(function (row) {
        var fits = words.every(function (word) { return texts.get(row).indexOf(word) !== -1; }) &&
          (!status || (row.dataset.judged === "1") === (status === "judged")) &&
          !(real && real.checked && row.dataset.virtual === "1");
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      });
      byId("filter-count").textContent = shown + " of " + rows.length;
    };
    form.addEventListener("input", filter);
    form.addEventListener("submit", function (event) { event.preventDefault(); });

    byId("download").addEventListener("click", function () {
      var records = JSON.parse(byId("records").textContent);
      var cell = function (value) {
        var text = value === null ? "" : String(value);
        return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
      };
      var lines = [records.columns].concat(records.rows).map(function (row) { return row.map(cell).join(","); });
      var link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
      link.download = "benchfarm-results.csv";
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }
})();

"use strict";
/* The nights that lines, charts and lists show: the last ones of all that the page has. */
(function () {
  var chooser = document.getElementById("nights");
  if (!chooser) { return; }
  var nights = chooser.dataset.nights.split(" "), chart = document.querySelector("svg.nights");
  /* Where the chart's figures begin and end, in % of its width. */
  var LEFT = 7.5, RIGHT = 98.5;
  var first = "", shown = nights.length, from = LEFT;
  function kept(value) {
    /* A page on a disk may have no storage. */
    try {
      if (value === undefined) { return sessionStorage.getItem("nights") || ""; }
      sessionStorage.setItem("nights", value);
    } catch (error) { /* Then each page begins with all. */ }
    return "";
  }
  function placed(at) { return LEFT + (at - from) * (RIGHT - LEFT) / (RIGHT - from); }
  function drawSpark(picture) {
    var box = (picture.dataset.whole = picture.dataset.whole || picture.getAttribute("viewBox")).split(" ");
    picture.setAttribute("viewBox", [nights.length - shown - 1, box[1], Math.max(2, shown + 1), box[3]].join(" "));
  }
  function moved(item, names) {
    names.forEach(function (name) {
      var key = "at" + name.toUpperCase();
      item.dataset[key] = item.dataset[key] || item.getAttribute(name);
      var at = placed(parseFloat(item.dataset[key]));
      item.setAttribute(name, at + "%");
      if (!item.dataset.night) { item.style.display = at < LEFT - 0.01 ? "none" : ""; }
    });
  }
  function drawChart() {
    var rows = Array.from(document.querySelectorAll(".nights-table tbody tr"));
    var inside = rows.filter(function (row) { return !row.hidden; });
    from = first && inside.length > 1 ? Math.min.apply(null, inside.map(function (row) { return Number(row.dataset.at || row.dataset.x); })) : LEFT;
    rows.forEach(function (row) {
      row.dataset.at = row.dataset.at || row.dataset.x;
      row.dataset.x = placed(Number(row.dataset.at));
    });
    chart.querySelectorAll(".change-line, .event-line").forEach(function (line) { moved(line, ["x1", "x2"]); });
    chart.querySelectorAll(".change-word").forEach(function (word) { moved(word, ["x"]); });
    document.querySelectorAll("svg.dates text").forEach(function (word) { moved(word, ["x"]); });
    var inner = chart.querySelector("svg"), each = 10 * (RIGHT - from) / (RIGHT - LEFT), begin = LEFT - 0.6;
    inner.setAttribute("x", begin + "%");
    inner.setAttribute("width", 100 - begin + "%");
    inner.setAttribute("viewBox", [10 * from - 0.6 * each, 0, (100 - begin) * each, 1000].join(" "));
  }
  function choose() {
    var days = Number(chooser.value);
    first = days ? new Date(Date.parse(nights[nights.length - 1]) - (days - 1) * 864e5).toISOString().slice(0, 10) : "";
    shown = nights.filter(function (night) { return night >= first; }).length;
    document.documentElement.classList.toggle("ranged", Boolean(days));
    document.querySelectorAll("[data-night]").forEach(function (item) {
      var isOut = item.dataset.night < first;
      if (item instanceof SVGElement) { item.style.display = isOut ? "none" : ""; } else { item.hidden = isOut; }
    });
    document.querySelectorAll("ul, tbody").forEach(function (list) {
      var items = Array.from(list.children).filter(function (item) { return item.dataset.night; });
      list.toggleAttribute("data-none", items.length > 0 && items.every(function (item) { return item.hidden; }));
    });
    document.querySelectorAll("svg.spark").forEach(drawSpark);
    if (chart) { drawChart(); }
  }
  chooser.addEventListener("change", function () { kept(chooser.value); choose(); });
  var wanted = kept();
  if (Array.from(chooser.options).some(function (option) { return option.value === wanted; })) { chooser.value = wanted; }
  choose();
  /* A table draws its lines as they come into sight. */
  document.querySelectorAll("[data-grid]").forEach(function (host) {
    new MutationObserver(function () { if (shown < nights.length) { host.querySelectorAll("svg.spark").forEach(drawSpark); } })
      .observe(host, { childList: true, subtree: true });
  });
})();
/* A series' chart: what the night under the pointer was, from the table below. */
(function () {
  var chart = document.querySelector(".nights"), readout = document.querySelector(".readout");
  if (!chart) { return; }
  var rows = Array.from(document.querySelectorAll(".nights-table tbody tr"));
  var cursor = chart.querySelector(".cursor");
  chart.addEventListener("pointermove", function (event) {
    var box = chart.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * 100;
    var nearest = rows.reduce(function (best, row) {
      return !best || Math.abs(row.dataset.x - at) < Math.abs(best.dataset.x - at) ? row : best;
    }, null);
    if (!nearest) { return; }
    ["x1", "x2"].forEach(function (name) { cursor.setAttribute(name, nearest.dataset.x + "%"); });
    cursor.setAttribute("visibility", "visible");
    var cells = nearest.cells;
    readout.textContent = cells[0].textContent + ": " + cells[1].textContent + " ms, interval " + cells[2].textContent + ", " + cells[3].textContent + " invocations, " + cells[4].textContent;
  });
  chart.addEventListener("pointerleave", function () { cursor.setAttribute("visibility", "hidden"); readout.textContent = "\u00a0"; });
})();

/* A case's evidence (report/evidence.py), in a dialog. evidence.html.j2 writes the same onto small pages: change both. */
(function () {
  var byId = report.byId, data = report.data, element = report.element;
  /* Small reports have it on the page, so that it is there without scripts too. */
  var dialog = byId("dialog");
  var settings = JSON.parse(byId("settings").textContent);
  var order = null;
  function placeOf(key) {
    if (settings.places) { return Promise.resolve(settings.places[key]); }
    if (!order) {
      order = data("results").then(function (page) {
        var places = new Map();
        page.keys.places.forEach(function (place, index) { places.set(page.keys.words[place], index); });
        return places;
      });
    }
    return order.then(function (places) { return places.get(key); });
  }
  /* What the data can make elements of. All else in them is text, and never read as HTML. */
  var NAMES = ["b", "bdi", "code", "del", "h3", "li", "p", "pre", "small", "span", "ul"];
  function draw(parent, part) {
    if (part === null || typeof part !== "object") { parent.append(String(part)); return parent; }
    if (Array.isArray(part)) { part.forEach(function (item) { draw(parent, item); }); return parent; }
    var name = Object.keys(part)[0], made;
    if (name === "table") { drawTable(parent, part); }
    else if (name === "traces") { parent.append(drawTraces(part.traces)); }
    else if (name === "log") { made = element("pre", "log", part.log); made.tabIndex = 0; parent.append(made); }
    else if (name === "icon") { made = element("span", "", part.icon); made.setAttribute("aria-hidden", "true"); parent.append(made); }
    else if (name === "br") { parent.append(element("br")); }
    else if (NAMES.indexOf(name) !== -1) { parent.append(draw(element(name, part["class"]), part[name])); }
    return parent;
  }
  function drawTable(parent, table) {
    var scroll = element("div", "scroll"), drawn = element("table", "small"), head = element("tr"), body = element("tbody");
    scroll.setAttribute("role", "region");
    scroll.tabIndex = 0;
    scroll.setAttribute("aria-label", table.table);
    var heads = table.heads.split("|").map(function (head) { return head.split(";"); });
    heads.forEach(function (column) {
      var cell = element("th", column[2], column[0]);
      cell.scope = "col";
      if (column[1]) { cell.append(" ", element("small", "", column[1])); }
      head.append(cell);
    });
    table.rows.forEach(function (row) {
      var line = element("tr", row["class"]);
      row.tr.forEach(function (cell, place) { line.append(draw(element("td", heads[place][2]), cell)); });
      body.append(line);
    });
    drawn.append(element("thead"), body);
    drawn.tHead.append(head);
    scroll.append(drawn);
    parent.append(element("h3", "", table.table), scroll);
  }
  function drawTraces(traces) {
    var all = element("div", "traces");
    traces.forEach(function (trace) {
      var figure = element("figure", "trace"), caption = element("figcaption", "", trace.name + " ");
      caption.append(element("small", "", trace.unit));
      var svg = report.svg("svg", { viewBox: "0 0 300 60", preserveAspectRatio: "none", role: "img", "aria-label": trace.about });
      svg.append(report.svg("polyline", { "class": "trace-line", points: trace.points }));
      figure.append(caption, svg, element("small", "", trace.told));
      all.append(figure);
    });
    return all;
  }
  function open(title, content) {
    byId("dialog-title").textContent = title;
    byId("dialog-body").replaceChildren(content);
    if (!dialog.open) { dialog.showModal(); }
    dialog.scrollTop = 0;
  }
  function evidence(key) {
    var source = byId("c-" + key);
    if (source) {
      var copy = document.createDocumentFragment();
      source.childNodes.forEach(function (node) { copy.appendChild(node.cloneNode(true)); });
      open(source.dataset.title, copy);
      return Promise.resolve(true);
    }
    return placeOf(key).then(function (place) {
      if (place === undefined) { return false; }
      return data("evidence-" + Math.floor(place / settings.evidence_size)).then(function (cases) {
        var item = cases[place % settings.evidence_size];
        open(item[0], draw(document.createDocumentFragment(), item[1]));
        return true;
      });
    });
  }
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a.open");
    var isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
    if (link && isPlain) {
      event.preventDefault();
      history.replaceState(null, "", link.getAttribute("href"));
      evidence(link.getAttribute("href").slice(3));
    }
  });
  dialog.addEventListener("close", function () { history.replaceState(null, "", location.pathname + location.search); });
  addEventListener("hashchange", function () { if (location.hash.indexOf("#c-") === 0) { evidence(location.hash.slice(3)); } });
  byId("dialog-close").addEventListener("click", function () { dialog.close(); });
  dialog.addEventListener("click", function (event) { if (event.target === dialog) { dialog.close(); } });
  if (location.hash.indexOf("#c-") === 0) { evidence(location.hash.slice(3)); }
})();

/* A case's evidence in a dialog: the HTML that report/evidence.py wrote, and drawings. */
(function () {
  var byId = report.byId, data = report.data, make = report.element;
  var dialog = byId("dialog"), together = Number(dialog.dataset.together);

  function drawing(name, attributes, inner) {
    var made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    made.append.apply(made, inner || []);
    return made;
  }
  /* As units.py writes a time span. */
  function duration(seconds) {
    var whole = Math.round(seconds), minutes = Math.floor(whole / 60);
    var two = function (count) { return String(count).padStart(2, "0"); };
    if (Math.round(seconds * 1000) < 1000) { return (seconds * 1000).toFixed(0) + " ms"; }
    if (Number(seconds.toFixed(1)) < 60) { return seconds.toFixed(1) + " s"; }
    if (minutes < 60) { return minutes + " min " + two(whole % 60) + " s"; }
    return Math.floor(minutes / 60) + " h " + two(minutes % 60) + " min";
  }

  /* Beside each run where its inferences lie, from 5 to 95 %, and its figure: all on one scale. */
  function withSpreads(table, told) {
    var heads = Array.from(table.tHead.rows[0].cells), rows = Array.from(table.tBodies[0].rows), ends = [];
    var spreads = rows.map(function (row) {
      return ["latency_us", "p5_us", "p95_us"].map(function (name) {
        var cell = row.cells[heads.findIndex(function (head) { return head.dataset.name === name; })];
        var value = cell ? parseFloat(cell.textContent) : NaN;
        if (!isNaN(value)) { ends.push([value, cell.textContent]); }
        return value;
      });
    });
    ends.sort(function (a, b) { return a[0] - b[0]; });
    var least = ends[0], most = ends[ends.length - 1], low = least[0], high = most[0];
    var at = function (value) { return 3 + 94 * (high > low ? (value - low) / (high - low) : 0.5) + "%"; };
    var head = make("th", "picture", "p5 to p95");
    head.scope = "col";
    table.tHead.rows[0].append(head);
    rows.forEach(function (row, place) {
      var cell = make("td", "picture"), shapes = [], figure = spreads[place][0], from = spreads[place][1], to = spreads[place][2];
      if (!isNaN(from) && !isNaN(to)) { shapes.push(drawing("line", { x1: at(from), x2: at(to), y1: 8, y2: 8 })); }
      if (!isNaN(figure)) { shapes.push(drawing("circle", { cx: at(figure), cy: 8, r: 3 })); }
      cell.append(drawing("svg", { "class": "spread", "aria-hidden": "true" }, shapes));
      row.append(cell);
    });
    return make("p", "legend", told + ". A line is one run, from 5 to 95 % of its inferences, a dot its figure; from " + least[1] + " to " + most[1] + " ms.");
  }
  function runs(html, told) {
    var made = report.fragment(html);
    made.append(withSpreads(made.querySelector("table"), told));
    return Array.from(made.childNodes);
  }

  /* As tables/runs.py has a moment. */
  function stateOf(item) {
    return {
      at: item[0], heat: item[1], clocks: item[2], limits: item[3], busy: item[4], zone: item[5],
      battery: item[6], batteryHeat: item[7], plugged: item[8], health: item[9]
    };
  }
  function cpus(state) {
    return Object.keys(Object.assign({}, state.clocks, state.limits)).sort(function (a, b) { return a - b; });
  }
  function mhz(khz) { return khz === undefined ? "---" : (khz / 1000).toFixed(0); }
  function battery(state) {
    var parts = [];
    if (state.battery !== null) { parts.push(state.battery + " %"); }
    if (state.batteryHeat !== null) { parts.push(state.batteryHeat.toFixed(1) + " °C"); }
    if (state.plugged) { parts.push(state.plugged === "none" ? "unplugged" : state.plugged); }
    if (state.health && state.health !== "good") { parts.push("health " + state.health); }
    return parts.join(", ") || "---";
  }
  function conditions(moments) {
    var heads = ["#", "when", "hottest zone °C", "battery", "clock/limit MHz"];
    var rows = moments.map(function (item) {
      var state = stateOf(item.slice(2));
      var clocks = cpus(state).map(function (cpu) { return "cpu" + cpu + " " + mhz(state.clocks[cpu]) + "/" + mhz(state.limits[cpu]); });
      var heat = state.heat === null ? "---" : state.heat.toFixed(1) + " (" + state.zone + ")";
      return [item[0], item[1], heat, battery(state), clocks.join(", ") || "---"];
    });
    var title = "Conditions before and after", holder = make("div", "scroll"), table = make("table", "whole small");
    var head = table.createTHead().insertRow(), body = table.createTBody();
    table.createCaption().textContent = title;
    table.caption.className = "unseen";
    holder.tabIndex = 0;
    holder.setAttribute("role", "region");
    holder.setAttribute("aria-label", title);
    holder.append(table);
    table.dataset.table = "conditions";
    heads.forEach(function (word) {
      head.append(make("th", "", word));
      head.lastChild.scope = "col";
    });
    rows.forEach(function (cells) {
      var row = body.insertRow();
      cells.forEach(function (text, place) { row.append(make(place ? "td" : "th", "", text)); });
      row.cells[0].scope = "row";
    });
    var states = moments.map(function (item) { return stateOf(item.slice(2)); });
    states.sort(function (a, b) { return a.at - b.at; });
    return [holder].concat(traces("Temperature and clocks over time", states));
  }

  /* Heat and clocks over time: a drawing of each quantity that changed, and a line with those that didn't. */
  function traces(title, states) {
    var series = new Map(), still = [], holder = make("div", "traces");
    function add(name, unit, at, value) {
      if (typeof value !== "number" || isNaN(value)) { return; }
      if (!series.has(name)) { series.set(name, { unit: unit, points: [] }); }
      series.get(name).points.push([at, value]);
    }
    states.forEach(function (state) {
      add("hottest zone", "°C", state.at, state.heat);
      cpus(state).forEach(function (cpu) { add("limit of cpu" + cpu, "MHz", state.at, state.limits[cpu] / 1000); });
      cpus(state).forEach(function (cpu) { add("clock of cpu" + cpu, "MHz", state.at, state.clocks[cpu] / 1000); });
      add("GPU busy", "%", state.at, state.busy);
    });
    series.forEach(function (item, name) {
      var points = item.points, values = points.map(function (point) { return point[1]; });
      if (points.length < 2) { return; }
      var low = Math.min.apply(null, values), high = Math.max.apply(null, values), begin = points[0][0];
      var span = points[points.length - 1][0] - begin, lasted = duration(span);
      if (low === high) { still.push(name + " " + high.toFixed(0) + " " + item.unit); return; }
      var places = points.map(function (point) {
        return (span ? 300 * (point[0] - begin) / span : 0).toFixed(1) + "," + (56 - 52 * (point[1] - low) / (high - low)).toFixed(1);
      });
      var told = name + ": " + low.toFixed(0) + " to " + high.toFixed(0) + " " + item.unit + " within " + lasted;
      var figure = make("figure", "trace"), caption = make("figcaption", "", name + " "), box = { viewBox: "0 0 300 60", preserveAspectRatio: "none", role: "img", "aria-label": told };
      caption.append(make("small", "", item.unit));
      figure.append(
        caption,
        drawing("svg", box, [drawing("path", { d: "M" + places.join(" ") })]),
        make("small", "", low.toFixed(0) + " – " + high.toFixed(0) + ", last " + values[values.length - 1].toFixed(0) + "; " + lasted)
      );
      holder.append(figure);
    });
    if (!holder.childElementCount && !still.length) { return []; }
    var told = still.length ? [make("p", "legend", "The same at every sample: " + still.join(", ") + ".")] : [];
    return [make("h3", "", title), holder].concat(told);
  }

  /* Kind of drawing -> what is shown of it. */
  var drawings = {
    runs: runs,
    moments: conditions,
    samples: function (title, text) { return traces(title, JSON.parse(text).map(stateOf)); }
  };

  /* What one block can't show leaves the others as they are. */
  function shown(block) {
    try {
      return typeof block === "string" ? Array.from(report.fragment(block).childNodes) : drawings[block[0]].apply(null, block.slice(1));
    } catch (error) {
      return [make("p", "empty", "\"" + block[0] + "\" of this case can't be shown: " + error.message)];
    }
  }
  function open(key) {
    data("results").then(function (results) {
      var place = results.links.indexOf("#c-" + key);
      if (place < 0) { return; }
      data("evidence-" + Math.floor(place / together)).then(function (cases) {
        var item = cases[place % together], body = byId("dialog-body");
        byId("dialog-title").textContent = item[0];
        body.replaceChildren.apply(body, [].concat.apply([], item[1].map(shown)));
        report.tables(body);
        if (!dialog.open) { dialog.showModal(); }
        dialog.scrollTop = 0;
      });
    });
  }
  function named() { if (location.hash.indexOf("#c-") === 0) { open(location.hash.slice(3)); } }
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a.open[href^='#c-']");
    var isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
    if (link && isPlain) {
      event.preventDefault();
      history.replaceState(null, "", link.getAttribute("href"));
      open(link.getAttribute("href").slice(3));
    }
  });
  dialog.addEventListener("close", function () { history.replaceState(null, "", location.pathname + location.search); });
  addEventListener("hashchange", named);
  byId("dialog-close").addEventListener("click", function () { dialog.close(); });
  dialog.addEventListener("click", function (event) { if (event.target === dialog) { dialog.close(); } });
  /* Paper has the case that is open, behind all else. */
  addEventListener("beforeprint", function () {
    if (!dialog.open) { return; }
    var copies = Array.from(byId("dialog-body").childNodes, function (part) { return part.cloneNode(true); });
    byId("printed").append.apply(byId("printed"), [make("h2", "", byId("dialog-title").textContent)].concat(copies));
  });
  addEventListener("afterprint", function () { byId("printed").replaceChildren(); });
  named();
})();

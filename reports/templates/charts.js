/* Charts: Vega is unfolded and run when the first of them comes into view, and never before. */
(function () {
  var make = report.element;
  var MANY_MARKS = 1500, STEP = 14, TEXT_LINE = 15, LEAST_HEIGHT = 70, MANY_DEVICES = 12, MOST_GROUPS = 24;
  var runtime = null;
  var drawn = [];

  function vega() {
    if (!runtime) {
      /* On the page itself, or a file beside it that many pages share. */
      runtime = report.has("vega") ? report.unfold("vega").then(function (code) {
        /* The page's policy lets no script stand in it but its own, and Vega compile what it draws. */
        (0, eval)(code);
      }) : new Promise(function (resolve, reject) {
        var script = make("script");
        script.src = report.byId("main").dataset.library;
        script.addEventListener("load", resolve);
        script.addEventListener("error", function () { reject(new Error("its library isn't there")); });
        document.head.append(script);
      });
    }
    return runtime;
  }
  function colour(name) {
    /* A colour of the style sheet as it is in this theme. */
    var probe = make("i");
    probe.style.color = "var(--" + name + ")";
    document.body.append(probe);
    var value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }
  function config() {
    var text = colour("text"), quiet = colour("quiet"), line = colour("line");
    var font = getComputedStyle(document.body).fontFamily;
    return {
      aria: false, background: null, font: font,
      axis: { labelColor: text, titleColor: quiet, gridColor: line, domainColor: quiet, tickColor: quiet, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 320 },
      legend: { labelColor: text, titleColor: quiet, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 260, symbolLimit: 60, columns: innerWidth < 700 ? 1 : undefined },
      text: { color: text }, rule: { color: quiet }, view: { stroke: line }
    };
  }
  /* The tooltip is text, whatever a device or a model is called. */
  var tip = report.byId("tip");
  function tooltip(handler, event, item, value) {
    if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
    var list = make("dl");
    Object.keys(value).forEach(function (name) { list.append(make("dt", "", name), make("dd", "", String(value[name]))); });
    tip.replaceChildren(list);
    tip.hidden = false;
    var left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    var top = event.clientY + 14 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 14;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }

  function walk(value, visit) {
    if (Array.isArray(value)) { value.forEach(function (item) { walk(item, visit); }); }
    else if (value && typeof value === "object") {
      visit(value);
      Object.keys(value).forEach(function (name) { walk(value[name], visit); });
    }
  }
  /* How wide a label beside an axis may be, in pixels and in characters of a line. */
  function labelWidth() { return innerWidth < 700 ? Math.max(110, innerWidth * 0.42) : Math.min(320, innerWidth / 3.5); }
  function labelChars() { return Math.floor(labelWidth() / 6.8); }
  /* A legend begins where the drawing does, right of the labels. */
  function legendChars() { return innerWidth < 700 ? Math.max(12, Math.floor((innerWidth - 60 - labelWidth()) / 8)) : labelChars(); }
  /* The most lines that a label has; the specification breaks labels in the same way. */
  function labelLines(rows, field) {
    var chars = labelChars(), pattern = new RegExp("(.{1," + chars + "})(?: +|\n|$)|(.{" + chars + "})", "g");
    return Math.max.apply(null, Array.from(new Set(rows.map(function (row) { return row[field]; })), function (label) { return (label.match(pattern) || [""]).length; }));
  }
  function adapted(chart, isLog, isRelative) {
    var spec = JSON.parse(JSON.stringify(chart.spec)), measure = spec.usermeta.measure;
    delete spec.usermeta;
    walk(spec, function (part) {
      var channel = part.encoding && measure && part.encoding[measure];
      if (!channel || !channel.scale) { return; }
      if (isLog) { channel.scale = { type: "log" }; }
      if (isRelative) { channel.title = "latency as a multiple of the baseline's"; }
    });
    walk(spec, function (part) { if (part.labelExpr) { part.labelLimit = labelWidth() * 1.25; } });
    if (innerWidth < 700) {
      walk(spec, function (part) { if (part.legend && part.legend.columns) { part.legend.columns = 1; } });
    }
    return spec;
  }

  function distinct(rows, field) { return new Set(rows.map(function (row) { return row[field]; })).size; }
  /* Of many devices each is a mark on one line with the others: a line for each would be longer than anybody scrolls. */
  function crowded(spec) {
    walk(spec, function (part) {
      if (part.encoding) {
        delete part.encoding.yOffset;
        if (part.encoding.color) { part.encoding.color.legend = null; }
        if (part.encoding.x2) { part.encoding = {}; part.mark = { type: "rule", opacity: 0 }; }
      }
      if (part.mark && part.mark.type === "bar") { part.mark = { type: "tick", thickness: 2, size: 22 }; }
      if (part.mark && part.mark.type === "point") { part.mark.opacity = 0.55; }
    });
    return spec;
  }
  /* The groups with the largest sums; rows of the others are left out. */
  function largest(rows, field, amount) {
    var sums = new Map();
    rows.forEach(function (row) { sums.set(row[field], (sums.get(row[field]) || 0) + row[amount]); });
    var kept = new Set(Array.from(sums).sort(function (a, b) { return b[1] - a[1]; }).slice(0, MOST_GROUPS).map(function (pair) { return pair[0]; }));
    return rows.filter(function (row) { return kept.has(row[field]); });
  }

  function Chart(figure, chart, rows) {
    this.figure = figure;
    this.chart = chart;
    this.rows = rows;
    this.isLog = false;
    this.picker = null;
    this.drawing = figure.querySelector(".drawing");
    this.build();
    drawn.push(this);
  }
  Chart.prototype.build = function () {
    var self = this, tools = make("div", "chart-tools"), by = this.chart.by;
    if (by) {
      var values = Array.from(new Set(this.rows.map(function (row) { return row[by]; })));
      this.picker = make("select");
      values.forEach(function (value) { self.picker.append(new Option(value, value)); });
      var label = make("label", "", by + " ");
      label.append(this.picker);
      this.picker.setAttribute("aria-label", by + " of " + this.chart.title);
      if (values.length > 1) { tools.append(label); }
      this.picker.addEventListener("change", function () { self.draw(); });
    }
    if (this.chart.spec.usermeta.measure) {
      var toggle = make("input"), text = make("label");
      toggle.type = "checkbox";
      text.append(toggle, " logarithmic");
      toggle.setAttribute("aria-label", "logarithmic scale of " + self.chart.title);
      toggle.addEventListener("change", function () { self.isLog = toggle.checked; self.draw(); });
      tools.append(text);
    }
    ["SVG", "PNG"].forEach(function (kind) {
      var button = make("button", "small", "Save " + kind);
      button.type = "button";
      button.setAttribute("aria-label", "Save " + self.chart.title + " as " + kind);
      button.addEventListener("click", function () { self.save(kind); });
      tools.append(button);
    });
    this.figure.querySelector(".chart-head").append(tools);
    this.note = make("span", "chart-note");
    this.figure.querySelector("figcaption").append(this.note);
  };
  Chart.prototype.shown = function (all) {
    var by = this.chart.by, value = this.picker ? this.picker.value : "", comparison = report.comparison;
    var rows = by ? this.rows.filter(function (row) { return row[by] === value; }) : this.rows;
    if (!this.isRelative()) { return rows; }
    return rows.map(function (row) {
      var times = comparison.ratio(all, all.rows.get(row.key)), scale = times === null ? null : 1 / (times * row.value);
      return times === null ? null : Object.assign({}, row, { value: row.value * scale, low: row.low * scale, high: row.high * scale });
    }).filter(Boolean);
  };
  Chart.prototype.isRelative = function () { return this.chart.dataset === "cases" && report.comparison.state.view === "relative"; };
  Chart.prototype.draw = function () {
    var self = this, comparison = report.comparison;
    return Promise.all([vega(), this.isRelative() ? comparison.load() : null]).then(function (ready) {
      var rows = self.shown(ready[1]), lines = self.chart.spec.usermeta.lines, note = "";
      var devices = distinct(rows, "device"), isCrowd = devices > MANY_DEVICES;
      if (lines.length && lines[0] !== "configuration" && distinct(rows, lines[0]) > MOST_GROUPS) {
        note = "The " + MOST_GROUPS + " largest of " + distinct(rows, lines[0]) + "; the table has all.";
        rows = largest(rows, lines[0], rows[0].amount === undefined ? "time" : "amount");
      } else if (isCrowd) {
        note = devices + " devices" + (lines.length ? ", without intervals" : "") + ": point at a mark for its name.";
      }
      var isLog = self.isLog || (self.chart.dataset === "cases" && comparison.state.scale === "log");
      var spec = adapted(self.chart, isLog, self.isRelative()), most = lines.length ? labelLines(rows, lines[0]) : 1;
      var known = { label_chars: labelChars(), legend_chars: legendChars(), label_lines: most };
      spec.params.forEach(function (param) { param.value = known[param.name]; });
      spec.data = { values: rows };
      if (isCrowd && lines[0] === "configuration") {
        spec = crowded(spec);
        spec.height = Math.max(LEAST_HEIGHT, Math.max(2 * STEP, TEXT_LINE * most) * distinct(rows, "configuration"));
      } else if (lines.length) {
        var marks = lines.slice(1).reduce(function (count, name) { return count * Math.max(1, distinct(rows, name)); }, 1);
        spec.height = Math.max(LEAST_HEIGHT, Math.max(STEP * marks, TEXT_LINE * most) * distinct(rows, lines[0]));
      } else if (isCrowd) {
        walk(spec, function (part) { if (part.color && part.color.field === "device") { part.color.legend = null; } });
      }
      self.note.textContent = note ? " " + note : "";
      walk(spec, function (part) { if (part !== spec && part.data && part.data.name === "rows") { delete part.data; } });
      if (self.view) { self.view.finalize(); self.view = null; }
      self.drawing.setAttribute("aria-label", self.chart.title + (self.picker ? ", " + self.picker.value : "") + ". " + self.chart.description + " " + rows.length + " rows; the table has the figures.");
      /* The whole drawing is one picture with a text of its own; what is inside of it isn't read out. */
      var inner = make("div", "inner");
      inner.setAttribute("aria-hidden", "true");
      self.drawing.replaceChildren(inner);
      return window.vegaEmbed(inner, spec, {
        mode: "vega-lite", actions: false, logLevel: 1, defaultStyle: false, hover: true, tooltip: tooltip, config: config(),
        renderer: rows.length > MANY_MARKS ? "canvas" : "svg"
      });
    }).then(function (made) {
      self.view = made.view;
      self.figure.classList.add("drawn");
    }).catch(function (error) {
      /* A viewer that forbids scripts to make scripts: the tables have the same figures. */
      self.drawing.textContent = "This viewer can't draw the chart (" + error.message + "). The table has its figures.";
    });
  };
  Chart.prototype.save = function (kind) {
    var name = "benchfarm-" + this.chart.name;
    if (!this.view) { return; }
    if (kind === "SVG") {
      this.view.toSVG().then(function (text) { report.save(name + ".svg", "image/svg+xml", text); });
    } else {
      this.view.toCanvas(2).then(function (canvas) { canvas.toBlob(function (blob) { report.save(name + ".png", "image/png", blob); }); });
    }
  };

  document.querySelectorAll("[data-chart]").forEach(function (figure) {
    report.whenSeen(figure, function () {
      report.data("charts").then(function (charts) {
        var chart = charts[figure.dataset.chart];
        return report.data("rows-" + chart.dataset).then(function (rows) { return new Chart(figure, chart, records(rows, chart)).draw(); });
      });
    });
  });
  /* Data sets come by column. */
  function records(page, chart) {
    var names = Object.keys(page), count = page[names[0]].length, rows = [];
    for (var place = 0; place < count; place += 1) {
      var row = {};
      names.forEach(function (name) { row[name] = page[name][place]; });
      rows.push(row);
    }
    return rows.filter(function (row) { return chart.needs.every(function (name) { return row[name] !== null; }); });
  }
  function redraw(fits) { drawn.forEach(function (chart) { if (fits(chart)) { chart.draw(); } }); }
  document.addEventListener("report-theme", function () { redraw(function () { return true; }); });
  document.addEventListener("report-comparison", function () { redraw(function (chart) { return chart.chart.dataset === "cases"; }); });
})();

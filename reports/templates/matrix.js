/* The comparison matrix: another baseline, relative figures, a logarithmic scale; and the figures that charts share with it. */
report.comparison = (function () {
  var state = { baseline: "cpu", view: "absolute", scale: "linear" };
  var facts = null;

  function load() {
    if (!facts) {
      facts = report.data("results").then(function (page) {
        var column = function (label) { return page.columns.find(function (item) { return item.label === label; }); };
        var found = {
          model: column("model"), device: column("device"), configuration: column("configuration"),
          median: column("median").values, low: column("from").values, high: column("to").values,
          speedUp: column("speed-up").values, kind: column("figure"), judged: page.judged, virtual: page.virtual, keys: page.keys,
          places: new Map(), rows: new Map()
        };
        page.virtual.forEach(function (_, row) {
          found.places.set(place(found.model.places[row], found.device.places[row], found.configuration.places[row]), row);
          found.rows.set(page.keys.words[page.keys.places[row]], row);
        });
        return found;
      });
    }
    return facts;
  }
  function place(model, device, configuration) { return model + " " + device + " " + configuration; }

  /* How many times as fast a row is as its baseline. None unless both are trusted, and never a virtual phone against a
     real one, or a median against a mean. */
  function ratio(all, row) {
    if (state.baseline === "cpu") { return all.speedUp[row]; }
    var name = state.baseline.slice(2);
    var isDevice = state.baseline.charAt(0) === "d";
    var column = isDevice ? all.device : all.configuration;
    var word = column.words.indexOf(name);
    var other = isDevice
      ? all.places.get(place(all.model.places[row], word, all.configuration.places[row]))
      : all.places.get(place(all.model.places[row], all.device.places[row], word));
    if (other === undefined || !all.judged[row] || !all.judged[other] || all.virtual[row] !== all.virtual[other]) { return null; }
    if (all.kind && all.kind.places[row] !== all.kind.places[other]) { return null; }
    return all.median[other] / all.median[row];
  }
  function label() {
    return state.baseline === "cpu" ? "CPU" : state.baseline.charAt(0) === "d" ? "baseline device" : "baseline";
  }

  function apply(scope) {
    if (!scope.querySelector("[data-row]")) { return; }
    load().then(function (all) {
      scope.querySelectorAll("table.matrix").forEach(function (table) {
        var cells = table.querySelectorAll("[data-row]");
        var least = Infinity, most = 0;
        cells.forEach(function (cell) {
          var row = Number(cell.dataset.row);
          least = Math.min(least, all.low[row] || all.median[row]);
          most = Math.max(most, all.high[row] || 0, all.median[row]);
        });
        /* Half a step below the least, so that the fastest has a bar too. */
        least *= 0.7;
        var x = function (value) {
          var share = state.scale === "log" ? Math.log(value / least) / Math.log(most / least) : value / most;
          return Math.round(Math.max(0, Math.min(1, share)) * 1000) / 10;
        };
        cells.forEach(function (cell) { change(all, cell, x); });
        table.classList.toggle("relative", state.view === "relative");
      });
    });
  }
  function change(all, cell, x) {
    var row = Number(cell.dataset.row), value = ratio(all, row);
    var text = value === null ? "---" : value.toFixed(2) + "×";
    var figure = cell.querySelector(".num"), against = cell.querySelector(".vs");
    if (cell.dataset.text === undefined) { cell.dataset.text = figure.textContent; }
    figure.textContent = state.view === "relative" ? text : cell.dataset.text;
    against.textContent = state.view === "relative" ? cell.dataset.text + " ms" : value === null ? text : text + " " + label();
    var fill = cell.querySelector(".bar-fill"), whisker = cell.querySelector(".bar-whisker");
    fill.setAttribute("width", x(all.median[row]));
    if (whisker) {
      var low = x(all.low[row]), high = x(all.high[row]);
      whisker.setAttribute("d", "M" + low + " 5H" + high + "M" + low + " 1V9M" + high + " 1V9");
    }
  }

  /* Reports of many models have the matrix of each folded until it is looked at. */
  document.querySelectorAll("[data-matrix]").forEach(function (holder) {
    report.whenSeen(holder, function () {
      report.data(holder.dataset.matrix).then(function (html) {
        var made = report.element("template");
        made.innerHTML = html;   /* written and escaped by benchfarm, as the rest of the page */
        holder.replaceChildren(made.content);
        holder.style.minHeight = "";
        if (isChanged()) { apply(holder); }
      });
    });
  });
  function isChanged() { return state.baseline !== "cpu" || state.view !== "absolute" || state.scale !== "linear"; }

  var form = report.byId("compare");
  if (form) {
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    form.addEventListener("change", function () {
      state.baseline = form.elements.baseline.value;
      state.view = form.elements.view.value;
      state.scale = form.elements.scale.value;
      apply(document);
      document.dispatchEvent(new Event("report-comparison"));
    });
    var find = report.byId("find-model");
    if (find) { find.addEventListener("input", function () {
      var words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      document.querySelectorAll(".model-block").forEach(function (block) {
        var name = block.dataset.model.toLowerCase();
        block.hidden = !words.every(function (word) { return name.indexOf(word) !== -1; });
      });
    }); }
  }
  return { state: state, load: load, ratio: ratio };
})();

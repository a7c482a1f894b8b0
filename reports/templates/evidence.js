/* A case's evidence (report/evidence.py), in a dialog. */
(function () {
  var byId = report.byId, data = report.data;
  /* Small reports have it on the page, so that it is there without scripts too. */
  var dialog = byId("dialog");
  var settings = JSON.parse(byId("settings").textContent);
  var order = null;
  function placeOf(key) {
    if (!order) {
      order = data("results").then(function (page) {
        var places = new Map();
        page.keys.places.forEach(function (place, index) { places.set(page.keys.words[place], index); });
        return places;
      });
    }
    return order.then(function (places) { return places.get(key); });
  }
  function open(title, content) {
    byId("dialog-title").textContent = title;
    byId("dialog-body").replaceChildren(content);
    report.tables(byId("dialog-body"));
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
        open(item[0], report.fragment(item[1]));
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

/* Tables that stand on the page whole: chosen from by chips, sorted by a click on a head, copied as Markdown. */
(function () {
  var make = report.element, collator = new Intl.Collator(undefined, { numeric: true });
  var chosen = { model: "", device: "" };

  function text(cell) { return cell.textContent.trim(); }
  /* What has no figure stays at the end. */
  function compared(first, second, direction) {
    var a = parseFloat(first), b = parseFloat(second);
    if (isNaN(a) !== isNaN(b)) { return isNaN(a) ? 1 : -1; }
    return direction * (isNaN(a) || a === b ? collator.compare(first, second) : a - b);
  }
  function sort(table, place, head) {
    var isUp = head.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
    table.querySelectorAll("th[aria-sort]").forEach(function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    Array.from(body.rows).sort(function (a, b) {
      return compared(text(a.cells[place]), text(b.cells[place]), isUp ? 1 : -1);
    }).forEach(function (row) { body.append(row); });
  }
  function copy(table) {
    var isPicture = Array.from(table.tHead.rows[0].cells, function (cell) { return cell.classList.contains("picture"); });
    var kept = function (cells) { return Array.from(cells).filter(function (_, place) { return !isPicture[place]; }); };
    var heads = kept(table.tHead.rows[0].cells);
    var rows = Array.from(table.tBodies[0].rows).filter(function (row) { return !row.hidden; });
    return report.markdown(
      heads.map(function (cell) { return cell.textContent.trim(); }),
      heads.map(function (cell) { return cell.classList.contains("n"); }),
      rows.map(function (row) { return kept(row.cells).map(text); })
    );
  }
  function ready(table) {
    if (table.dataset.ready) { return; }
    table.dataset.ready = "1";
    Array.from(table.tHead.rows[0].cells).forEach(function (head, place) {
      if (head.classList.contains("picture") || !head.textContent) { return; }
      var button = make("button", "sort");
      button.type = "button";
      button.append.apply(button, Array.from(head.childNodes));
      button.addEventListener("click", function () { sort(table, place, head); });
      head.append(button);
    });
    var tools = make("div", "table-tools"), copier = make("button", "small", "Copy as Markdown");
    copier.type = "button";
    copier.addEventListener("click", function () { report.copied(copier, copy(table)); });
    tools.append(copier);
    table.parentElement.after(tools);
    choose(table);
  }
  function choose(scope) {
    scope.querySelectorAll("tr[data-model]").forEach(function (row) {
      row.hidden = Boolean(chosen.model && row.dataset.model !== chosen.model || chosen.device && row.dataset.device !== chosen.device);
    });
  }
  function all(scope) { scope.querySelectorAll("table.whole").forEach(ready); }

  var form = report.byId("chips");
  if (form) {
    form.addEventListener("click", function (event) {
      var chip = event.target.closest("[data-chip]");
      if (!chip) { return; }
      var name = chip.closest("[data-chips]").dataset.chips;
      chosen[name] = chip.dataset.chip;
      chip.parentElement.querySelectorAll("[data-chip]").forEach(function (other) { other.setAttribute("aria-pressed", String(other === chip)); });
      choose(document);
      document.querySelectorAll(".model-block").forEach(function (block) {
        block.hidden = Boolean(chosen.model && block.dataset.model !== chosen.model);
        if (chosen.model && !block.hidden) { block.open = true; }
      });
      report.chosen = chosen;
      document.dispatchEvent(new Event("report-chosen"));
    });
  }
  /* Pictures of a report of many models are folded until they are looked at. */
  document.querySelectorAll("[data-fold]").forEach(function (holder) {
    report.whenSeen(holder, function () {
      report.data(holder.dataset.fold).then(function (html) {
        holder.replaceChildren(report.fragment(html));
        all(holder);
      });
    });
  });
  all(document);
  report.tables = all;
})();

"use strict";
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

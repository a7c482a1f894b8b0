/* The live page of the farm: the server draws it, this asks for it again and sends what its buttons say. */
(function () {
  var token = "", shown = "", EVERY_MS = 2000;
  var byId = function (id) { return document.getElementById(id); };
  var part = byId("farm"), form = byId("steer");
  if (!part) { return; }
  function live(text) { byId("live-state").textContent = text; byId("live").dataset.state = text; }
  function told(text) { byId("told").textContent = text; }
  function localTimes() {
    part.querySelectorAll("time").forEach(function (time) {
      var at = new Date(time.dateTime), form = { hour: "2-digit", minute: "2-digit", hour12: false };
      if (at.toDateString() !== new Date().toDateString()) { form.weekday = "short"; }
      time.textContent = at.toLocaleTimeString([], form);
    });
  }

  /* What was opened stays open, and the button that had the focus has it. */
  function show(html) {
    if (html === shown) { return; }
    shown = html;
    var open = {}, focused = document.activeElement && document.activeElement.dataset.act;
    part.querySelectorAll("[data-key]").forEach(function (fold) { open[fold.dataset.key] = fold.open; });
    part.innerHTML = html;   /* written and escaped by benchfarm, as the rest of the page */
    part.querySelectorAll("[data-key]").forEach(function (fold) {
      if (fold.dataset.key in open) { fold.open = open[fold.dataset.key]; }
    });
    part.querySelectorAll("[data-act]").forEach(function (button) { if (focused === button.dataset.act) { button.focus(); } });
    localTimes();
  }
  function load() {
    return fetch("farm/now").then(function (answer) {
      return answer.ok ? answer.text() : Promise.reject(new Error(String(answer.status)));
    }).then(function (html) {
      show(html);
      live(byId("fault") ? "not up to date" : "live");
      byId("live-at").textContent = new Date().toLocaleTimeString([], { hour12: false });
    }).catch(function () { live("connection lost, trying again"); });
  }
  function again() {
    (document.hidden ? Promise.resolve() : load()).then(function () { setTimeout(again, EVERY_MS); });
  }

  function send(method, path, body) {
    var headers = { Authorization: "Bearer " + token };
    if (body) { headers["Content-Type"] = "application/json"; }
    return fetch("api/v1" + path, { method: method, headers: headers, body: body }).then(function (response) {
      return response.json().then(function (answer) {
        return response.ok ? answer : Promise.reject(new Error(answer.error + (answer.hint ? " (" + answer.hint + ")" : "")));
      });
    });
  }
  function steer(known) {
    token = known;
    document.documentElement.classList.toggle("steers", Boolean(token));
  }
  part.addEventListener("click", function (event) {
    var button = event.target.closest("[data-act]");
    if (!button || button.dataset.asks && !window.confirm(button.dataset.asks)) { return; }
    var request = button.dataset.act.split(" ");
    send(request[0], request[1], button.dataset.body).then(function (answer) { told(answer.text); return load(); }, function (error) { told(error.message); });
  });
  if (form) {
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      token = byId("token").value.trim();
      send("GET", "/access").then(
        function () { byId("token").value = ""; told(""); steer(token); },
        function (error) { steer(""); told(error.message); }
      );
    });
    byId("steer-off").addEventListener("click", function () { steer(""); });
  }
  localTimes();
  again();
})();

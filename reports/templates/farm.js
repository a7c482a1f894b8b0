"use strict";
/* The live page of the farm: drawn from the API, again whenever the farm changed. */
(function () {
  var api = "api/v1", farm = null, token = "";
  var byId = function (id) { return document.getElementById(id); };

  /* Elements; what came from phones and people is text, never markup. */
  function make(tag, options, children) {
    var element = document.createElement(tag);
    Object.keys(options || {}).forEach(function (name) {
      if (name === "class") { element.className = options[name]; } else if (name === "click") { element.addEventListener("click", options[name]); } else { element.setAttribute(name, options[name]); }
    });
    (children || []).forEach(function (child) { if (child !== null && child !== "") { element.append(child); } });
    return element;
  }
  function name(text) { return text ? make("bdi", {}, [text]) : null; }
  function small(text) { return text ? make("small", {}, [" ", name(text)]) : null; }
  function badge(text, kind) { return make("span", { "class": "badge " + kind }, [text]); }
  function virtual(is) { return is ? make("span", { "class": "badge virtual" }, ["virtual"]) : null; }
  function clock(text) {
    var at = new Date(text), now = new Date();
    var day = at.toDateString() === now.toDateString() ? "" : at.toLocaleDateString(undefined, { month: "short", day: "numeric" }) + " ";
    return day + at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
  }
  function inTime(text) {
    var minutes = Math.round((new Date(text) - Date.now()) / 60000);
    return minutes < 1 ? "soon" : minutes < 100 ? minutes + " min" : Math.round(minutes / 60) + " h";
  }
  function percent(ratio) { var value = 100 * (ratio - 1); return (value > 0 ? "+" : "") + value.toFixed(1) + " %"; }
  function bar(stored, left, label) {
    return make("progress", { max: Math.max(1, stored + left), value: stored, "aria-label": label });
  }

  /* A table whose rows become cards on a narrow window. */
  function table(heads, rows, nothing) {
    if (!rows.length) { return make("p", { "class": "empty" }, [nothing]); }
    return make("table", { "class": "cards facts" }, [
      make("thead", {}, [make("tr", {}, heads.map(function (head) { return make("th", { scope: "col" }, [head || make("span", { "class": "unseen" }, ["actions"])]); }))]),
      make("tbody", {}, rows.map(function (row) {
        return make("tr", { "class": row.isVirtual ? "virtual-ground" : "" }, row.cells.map(function (cell, place) {
          var options = place ? { "data-label": heads[place] || "actions" } : { scope: "row" };
          if (place && !cell.some(function (part) { return part !== null && part !== ""; })) { options["class"] = "nothing"; }
          return make(place ? "td" : "th", options, cell);
        }));
      }))
    ]);
  }

  /* What the token's owner may do. */
  function act(label, method, path, body, question) {
    if (!token) { return null; }
    return make("button", { type: "button", "class": "small", "data-act": method + path, click: function () {
      if (question && !window.confirm(question)) { return; }
      send(method, path, body).then(function (answer) { byId("told").textContent = answer.text; load(); });
    } }, [label]);
  }
  function send(method, path, body) {
    var headers = { Authorization: "Bearer " + token };
    if (body) { headers["Content-Type"] = "application/json"; }
    return fetch(api + path, { method: method, headers: headers, body: body ? JSON.stringify(body) : undefined })
      .then(function (response) {
        return response.json().then(function (answer) {
          return response.ok ? answer : Promise.reject(new Error(answer.error + (answer.hint ? " (" + answer.hint + ")" : "")));
        });
      })
      .catch(function (error) { byId("told").textContent = error.message; return Promise.reject(error); });
  }
  function holdButton(scope, what) {
    return scope in farm.holds
      ? act("Resume " + what, "DELETE", "/holds?scope=" + encodeURIComponent(scope))
      : act("Pause " + what, "POST", "/holds", { scope: scope, kind: "pause" });
  }

  var KINDS = { measuring: "t-full", "abandoned": "v-error", clash: "v-error", quarantined: "v-error", unusable: "v-error", silent: "v-error", away: "v-warning", held: "v-warning", waiting: "tied", runs: "t-full", waits: "tied", failed: "v-error", alive: "t-full", pause: "v-warning", drain: "v-warning" };
  function kind(word) { return KINDS[word] || ""; }

  function deviceRow(item) {
    var work = item.stored + item.left;
    return { isVirtual: item.is_virtual, cells: [
      [name(item.name || item.serial), virtual(item.is_virtual) && " ", virtual(item.is_virtual), item.name ? small(item.serial) : null, small(item.host && "at " + item.host)],
      [badge(item.state, kind(item.state)), item.reason ? " " : null, item.reason ? name(item.reason) : null],
      [item.doing ? name(item.doing) : null, item.submission ? small(item.submission) : null],
      work && item.campaign_id ? [bar(item.stored, item.left, "progress of " + item.serial), " " + item.stored + "\u00a0of\u00a0" + work] : [null],
      [item.done_at ? inTime(item.done_at) + ", " + clock(item.done_at) : null],
      [item.battery_heat_c === null ? null : item.battery_heat_c.toFixed(0) + "\u00a0°C"],
      [item.battery_percent === null ? null : item.battery_percent.toFixed(0) + "\u00a0%"],
      [item.state === "quarantined" ? act("Release", "DELETE", "/quarantine/" + encodeURIComponent(item.serial), null, "Release " + item.serial + " from quarantine?") : null,
        farm.has_queue ? holdButton("phone:" + item.serial, "phone") : null]
    ] };
  }
  function jobRow(job) {
    return { cells: [
      [name(job.serial)],
      [badge(job.status, kind(job.status)), small(job.note)],
      [name(job.plan)],
      [String(job.priority)],
      [name(job.host)]
    ] };
  }
  /* A fold for each submission; one that somebody opened stays open. */
  var opened = {};
  function fold(key, words, parts, isOpen) {
    var part = make("details", { "class": "fold-plain" }, [make("summary", {}, words)].concat(parts));
    part.open = key in opened ? opened[key] : isOpen;
    part.addEventListener("toggle", function () { opened[key] = part.open; });
    return part;
  }
  function counted(items, field) {
    var counts = {};
    items.forEach(function (item) { counts[item[field]] = (counts[item[field]] || 0) + 1; });
    return Object.keys(counts).map(function (word) { return counts[word] + " " + word; }).join(", ");
  }
  function submissions() {
    var names = farm.jobs.map(function (job) { return job.submission; }).filter(function (item, place, all) { return all.indexOf(item) === place; });
    if (!names.length) { return [make("p", { "class": "empty" }, ["No job waits or runs."])]; }
    return names.map(function (submission) {
      var jobs = farm.jobs.filter(function (job) { return job.submission === submission; });
      var words = [name(submission), " ", make("small", {}, [counted(jobs, "status")])];
      return fold("job " + submission, words, [
        act("Cancel " + submission, "DELETE", "/submissions/" + encodeURIComponent(submission), null, "Cancel what waits and runs of " + submission + "?"),
        table(["phone", "status", "plan", "priority", "host"], jobs.map(jobRow), "")
      ], farm.jobs.length <= MANY);
    });
  }
  /* Of many phones, those that are free and well are folded. */
  var MANY = 12, CALM = ["free", "idle"];
  function phones() {
    var heads = ["phone", "state", "what it does", "progress", "done in", "heat", "battery", ""];
    var calm = farm.devices.length > MANY ? farm.devices.filter(function (item) { return CALM.indexOf(item.state) >= 0; }) : [];
    var others = farm.devices.filter(function (item) { return calm.indexOf(item) < 0; });
    var parts = others.length || !calm.length ? [table(heads, others.map(deviceRow), "No phone was seen in the last 24 hours.")] : [];
    return calm.length ? parts.concat(fold("calm", [counted(calm, "state")], [table(heads, calm.map(deviceRow), "")], false)) : parts;
  }
  function hostRow(item) {
    return { cells: [[name(item.name)], [badge(item.state, kind(item.state))], [name(item.note)], [holdButton("host:" + item.name, "host")]] };
  }
  function tile(label, value, trouble) { return make("div", { "class": trouble ? "tile-trouble" : "" }, [make("dt", {}, [label]), make("dd", {}, [String(value)])]); }

  /* From noon to noon is one night; by day people call it today. */
  function dayWord() {
    var hour = new Date().getHours();
    return hour >= 7 && hour < 19 ? "Today" : "Tonight";
  }
  function draw() {
    var night = farm.night, counts = {}, focused = document.activeElement && document.activeElement.dataset.act;
    farm.devices.forEach(function (item) { counts[item.state] = (counts[item.state] || 0) + 1; });
    byId("night-title").textContent = dayWord() + ", " + night.night;
    byId("night-bar").replaceChildren(night.stored + night.left ? bar(night.stored, night.left, dayWord()) : "");
    byId("night").replaceChildren.apply(byId("night"), [
      tile("invocations stored of " + (night.stored + night.left), night.stored),
      tile("without a result", night.without_result, night.without_result > 0),
      tile("campaigns", night.campaigns),
      night.done_at ? tile("done about", clock(night.done_at)) : ""
    ].concat(Object.keys(counts).map(function (state) { return tile("phones " + state, counts[state], kind(state) === "v-error"); })).filter(Boolean));
    byId("devices").replaceChildren.apply(byId("devices"), phones());
    byId("jobs").replaceChildren.apply(byId("jobs"), submissions());
    if (farm.more_jobs) { byId("jobs").append(make("p", {}, ["and " + farm.more_jobs + " more"])); }
    byId("hosts").replaceChildren(table(["host", "state", "note", ""], farm.hosts.map(hostRow), "No host is known: 'benchfarm farm worker' adds one."));
    document.querySelectorAll("[data-needs=queue]").forEach(function (section) { section.hidden = !farm.has_queue; });
    byId("fault").hidden = !farm.fault;
    byId("fault").textContent = farm.fault ? "Not all can be read now. What stands here may be old; it is read again by itself (" + farm.fault + ")." : "";
    byId("steer-none").hidden = farm.can_be_steered;
    byId("steer").hidden = !farm.can_be_steered || token !== "";
    byId("steer-on").hidden = token === "";
    byId("steer-all").replaceChildren(farm.has_queue && token ? holdButton("farm", "the whole farm") : "");
    byId("live-at").textContent = new Date().toLocaleTimeString([], { hour12: false });
    if (focused) { Array.from(document.querySelectorAll("[data-act]")).filter(function (item) { return item.dataset.act === focused; }).forEach(function (item) { item.focus(); }); }
  }
  function drawChanges(changes) {
    var recent = changes.filter(function (item) { return item.is_recent && item.state !== "expected" && item.state !== "refuted"; });
    byId("changes").replaceChildren.apply(byId("changes"), recent.slice(0, 12).map(function (item) {
      return make("li", {}, [make("a", { href: item.page }, [name(item.label)]), " ", virtual(item.is_virtual), " ",
        make("b", { "class": item.ratio > 1 ? "is-slower" : "is-faster" }, [percent(item.ratio)]), " [" + percent(item.low) + ", " + percent(item.high) + "] since " + item.night + ", " + item.state]);
    }));
    byId("changes-none").replaceChildren(recent.length ? recent.length + " changes in the last 14 nights, newest first. " : "No unexpected change in the last 14 nights. ", make("a", { href: "index.html" }, ["All series"]));
  }

  /* What changed is asked for again when a campaign was begun or ended; the rest comes by itself. */
  var mark = null;
  function show(answer) {
    farm = answer;
    draw();
    var now = [farm.night.night, farm.night.campaigns, farm.night.left === 0].join();
    if (now !== mark && !farm.fault) {
      mark = now;
      get("/changes?limit=1000").then(drawChanges, function () { mark = null; });
    }
  }
  function get(path) { return fetch(api + path).then(function (response) { return response.ok ? response.json() : Promise.reject(new Error(String(response.status))); }); }
  function load() { return get("/farm").then(show); }
  function live(text) { byId("live-state").textContent = text; byId("live").dataset.state = text; }
  function listen() {
    var source = new EventSource(api + "/farm/events");
    source.addEventListener("farm", function (event) { show(JSON.parse(event.data)); live(farm.fault ? "not up to date" : "live"); });
    source.addEventListener("error", function () {
      live("connection lost, trying again");
      if (source.readyState === EventSource.CLOSED) { setTimeout(function () { load().then(function () { live("live"); }, function () {}).then(listen); }, 10000); }
    });
  }
  byId("steer").addEventListener("submit", function (event) {
    event.preventDefault();
    token = byId("token").value.trim();
    send("GET", "/access").then(function () { byId("token").value = ""; byId("told").textContent = ""; draw(); }, function () { token = ""; });
  });
  byId("steer-off").addEventListener("click", function () { token = ""; draw(); });
  setInterval(function () { if (farm) { draw(); } }, 30000);
  listen();
})();

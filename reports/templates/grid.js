/* Tables to sort, search and filter. The data come by column; only the rows in view are drawn, so that their number doesn't matter. */
(function () {
  var make = report.element;
  var ALL_DRAWN = 300, BEYOND = 15, PRINTED = 1000, ROW = 34, KEPT = 28, FEW = 12, TALL = 40;
  var collator = new Intl.Collator(undefined, { numeric: true });
  var grids = [];

  function Grid(host, page) {
    this.host = host;
    this.page = page;
    /* Columns that stand below the first one, too, where a narrow window hides them. */
    this.apart = host.dataset.apart && host.dataset.apart.split(" ");
    this.columns = page.columns.filter(function (column) { return !column.same; });
    this.same = page.columns.filter(function (column) { return column.same; });
    this.count = page.virtual.length;
    this.isLong = this.count > ALL_DRAWN;
    this.sorted = null;
    this.group = null;
    this.rows = null;
    this.build();
    this.refresh();
    grids.push(this);
  }
  Grid.prototype.word = function (column, row) { return column.words[column.places[row]]; };
  Grid.prototype.key = function (row) { return this.page.keys.words[this.page.keys.places[row]]; };
  Grid.prototype.text = function (column, row) {
    if (column.kind === "picture") { return ""; }
    if (column.kind === "number") { return column.texts[row]; }
    var word = this.word(column, row);
    return column.kind === "badge" ? word.slice(word.indexOf("|") + 1) : word;
  };

  Grid.prototype.build = function () {
    var grid = this;
    var form = make("form", "filter");
    form.setAttribute("role", "search");
    form.setAttribute("aria-label", this.page.caption);
    this.search = make("input");
    this.search.type = "search";
    this.search.autocomplete = "off";
    this.search.placeholder = "any words";
    form.append(labelled("Search", this.search));
    this.choices = [];
    var choices = make("div");
    this.columns.forEach(function (column) {
      if (!column.choice || grid.count < FEW) { return; }
      var select = make("select");
      var words = column.words.map(function (word, place) { return [column.kind === "badge" ? word.slice(word.indexOf("|") + 1) : word, place]; });
      words.sort(function (a, b) { return collator.compare(a[0], b[0]); });
      select.append(new Option("all", ""));
      words.forEach(function (pair) { if (pair[0]) { select.append(new Option(pair[0], pair[1])); } });
      grid.choices.push([column, select]);
      choices.append(labelled(column.label, select));
    });
    if (this.page.judged) {
      this.judged = make("select");
      [["all", ""], ["clean", "1"], ["not clean", "0"]].forEach(function (pair) { grid.judged.append(new Option(pair[0], pair[1])); });
      form.append(labelled("Show", this.judged));
    }
    if (new Set(this.page.virtual).size > 1) {
      this.real = make("input");
      this.real.type = "checkbox";
      var label = make("label");
      label.append(this.real, " real devices only");
      form.append(label);
    }
    this.sortBy = make("select");
    this.sortBy.append(new Option(this.page.order, ""));
    this.columns.forEach(function (column, place) {
      if (column.kind === "picture") { return; }
      grid.sortBy.append(new Option(title(column) + " ▲", place + " 1"), new Option(title(column) + " ▼", place + " -1"));
    });
    var sortLabel = labelled("Sort by", this.sortBy);
    sortLabel.classList.add("narrow-only");
    form.append(sortLabel);
    if (choices.childElementCount) {
      var folded = make("details", "choices");
      folded.append(make("summary", "", "Choose by " + this.choices.map(function (pair) { return pair[0].label; }).join(", ")), choices);
      this.folded = folded;
    }
    this.shown = make("output");
    this.shown.setAttribute("aria-live", "polite");
    var saver = make("button", "", "Save as CSV");
    saver.type = "button";
    saver.addEventListener("click", function () { grid.saveCsv(); });
    var copier = make("button", "", "Copy as Markdown");
    copier.type = "button";
    copier.addEventListener("click", function () { report.copied(copier, grid.markdown()); });
    form.append(this.shown, saver, copier);
    if (this.folded) { form.append(this.folded); }
    form.addEventListener("input", function (event) { if (event.target !== grid.sortBy) { grid.refresh(); } });
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    this.sortBy.addEventListener("change", function () {
      var parts = grid.sortBy.value.split(" ").map(Number);
      grid.sortOn(grid.sortBy.value ? parts[0] : null, parts[1]);
    });

    this.view = make("div", this.count > TALL ? "scroll view tall" : "scroll view");
    this.view.tabIndex = 0;
    this.view.setAttribute("role", "region");
    this.view.setAttribute("aria-label", this.page.caption);
    this.table = make("table", this.isLong ? "grid-table long" : "grid-table");
    this.table.setAttribute("aria-rowcount", this.count + 1);
    this.table.append(make("caption", "unseen", this.page.caption));
    var head = make("thead"), line = make("tr");
    if (this.isLong) {
      var widths = make("colgroup");
      this.columns.forEach(function (column) {
        var col = make("col");
        col.style.width = width(column) + "ch";
        widths.append(col);
      });
      this.table.append(widths);
      this.table.style.width = this.columns.reduce(function (sum, column) { return sum + width(column); }, 0) + "ch";
    }
    this.heads = this.columns.map(function (column, place) {
      var cell = make("th", column.kind === "number" ? "n" : "");
      cell.scope = "col";
      if (column.kind === "picture") {
        cell.textContent = column.label;
        line.append(cell);
        return cell;
      }
      var button = make("button", "sort", column.label);
      button.type = "button";
      if (column.unit) { button.append(" ", make("small", "", column.unit)); }
      button.addEventListener("click", function () {
        var isAscending = cell.getAttribute("aria-sort") === "ascending";
        grid.sortOn(place, isAscending ? -1 : 1);
      });
      cell.append(button);
      line.append(cell);
      return cell;
    });
    head.append(line);
    this.body = make("tbody");
    this.table.append(head, this.body);
    this.view.append(this.table);
    var pending = false;
    this.view.addEventListener("scroll", function () {
      if (!grid.isLong || pending) { return; }
      pending = true;
      requestAnimationFrame(function () { pending = false; grid.draw(); });
    }, { passive: true });
    this.host.replaceChildren(form, this.view);
    var told = this.same.filter(function (column) { return !isNothing(grid.text(column, 0)); }).map(function (column) {
      return [column.label, grid.text(column, 0), column.unit].filter(Boolean).join(" ");
    });
    if (told.length) { this.host.append(allRows(told)); }
    this.host.classList.add("drawn");
  };

  function isNothing(word) { return !word || word === "---"; }
  function allRows(told) { return make("p", "legend", "In all rows: " + told.join("; ") + "."); }
  function labelled(text, control) {
    var label = make("label", "", text + " ");
    label.append(control);
    control.setAttribute("aria-label", text);
    return label;
  }
  function width(column) {
    var longest = Math.max(column.label.length, (column.unit || "").length) + 2;
    if (column.kind === "picture") { return 20; }
    var words = column.kind === "number" ? column.texts : column.words;
    if (column.kind === "number") { longest = Math.max(longest, 9); }
    for (var i = 0; i < words.length; i += 1) { longest = Math.max(longest, words[i].length); }
    return Math.min(longest, 40) + 3;
  }

  Grid.prototype.sortOn = function (place, direction) {
    this.sorted = place === null ? null : [place, direction];
    this.heads.forEach(function (head, index) {
      if (index === place) { head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending"); }
      else { head.removeAttribute("aria-sort"); }
    });
    this.sortBy.value = place === null ? "" : place + " " + direction;
    this.refresh();
  };

  /* Which rows fit, in which order; rows without a figure stay at the end. */
  Grid.prototype.refresh = function () {
    var page = this.page, rows = [], row;
    var words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    var matches = words.length ? this.matching(words) : null;
    var chosen = this.choices.filter(function (pair) { return pair[1].value !== ""; });
    var judged = this.judged && this.judged.value, real = this.real && this.real.checked;
    var fits = this.fitting();
    var group = this.group === null ? -1 : page.groups.words.indexOf(this.group);
    next: for (row = 0; row < this.count; row += 1) {
      if (this.group !== null && page.groups.places[row] !== group) { continue; }
      if (real && page.virtual[row]) { continue; }
      if (judged && String(page.judged[row]) !== judged) { continue; }
      for (var c = 0; c < chosen.length; c += 1) {
        if (chosen[c][0].places[row] !== Number(chosen[c][1].value)) { continue next; }
      }
      if (matches && !matches(row)) { continue; }
      if (fits && !fits(row)) { continue; }
      rows.push(row);
    }
    if (this.sorted) { this.order(rows); }
    this.rows = rows;
    this.view.scrollTop = 0;
    var whole = this.group === null ? this.count : page.groups.places.filter(function (place) { return place === group; }).length;
    this.shown.textContent = rows.length + " of " + whole;
    this.drawnFrom = -1;
    this.draw();
  };
  Grid.prototype.matching = function (words) {
    var columns = this.page.columns.filter(function (column) { return column.kind !== "number" && isWords(column); });
    /* Each different word is searched once, not once for each row. */
    var hits = words.map(function (word) {
      return columns.map(function (column) {
        return column.words.map(function (text) { return text.toLowerCase().indexOf(word) !== -1; });
      });
    });
    return function (row) {
      return hits.every(function (byColumn) {
        return byColumn.some(function (fits, index) { return fits[columns[index].places[row]]; });
      });
    };
  };
  /* What the page's chips choose: a model, a kind of device, behind which a serial number may stand. */
  Grid.prototype.fitting = function () {
    var grid = this, chosen = report.chosen || {};
    var rules = ["model", "device"].map(function (name) {
      var column = chosen[name] && grid.page.columns.find(function (item) { return item.name === name && item.words; });
      return column && function (row) {
        var word = grid.word(column, row);
        return word === chosen[name] || word.indexOf(chosen[name] + " (") === 0;
      };
    }).filter(Boolean);
    return rules.length && function (row) { return rules.every(function (rule) { return rule(row); }); };
  };
  Grid.prototype.order = function (rows) {
    var column = this.columns[this.sorted[0]], direction = this.sorted[1], ranks = null;
    if (column.kind !== "number") {
      var words = column.words.map(function (word, place) { return [word.slice(word.indexOf("|") + 1), place]; });
      words.sort(function (a, b) { return collator.compare(a[0], b[0]); });
      ranks = [];
      words.forEach(function (pair, rank) { ranks[pair[1]] = rank; });
    }
    var value = function (row) { return ranks ? ranks[column.places[row]] : column.values[row]; };
    rows.sort(function (a, b) {
      var first = value(a), second = value(b);
      if (first === null || second === null) { return (first === null) - (second === null) || a - b; }
      return direction * (first - second) || a - b;
    });
  };

  Grid.prototype.draw = function () {
    if (!this.isLong) { this.fill(0, this.rows.length); return; }
    var from = Math.max(0, Math.floor(this.view.scrollTop / ROW) - BEYOND);
    var to = Math.min(this.rows.length, from + Math.ceil((this.view.clientHeight || 700) / ROW) + 2 * BEYOND);
    if (from !== this.drawnFrom || to !== this.drawnTo) { this.fill(from, to); }
  };
  Grid.prototype.fill = function (from, to) {
    this.drawnFrom = from;
    this.drawnTo = to;
    var lines = document.createDocumentFragment();
    if (from > 0) { lines.append(spacer(from, this.columns.length)); }
    for (var place = from; place < to; place += 1) { lines.append(this.line(this.rows[place], place)); }
    if (to < this.rows.length) { lines.append(spacer(this.rows.length - to, this.columns.length)); }
    if (!this.rows.length) {
      var line = make("tr"), cell = make("td", "empty", "No row fits.");
      cell.colSpan = this.columns.length;
      line.append(cell);
      lines.append(line);
    }
    this.body.replaceChildren(lines);
  };
  function spacer(count, columns) {
    var line = make("tr", "spacer"), cell = make("td");
    line.setAttribute("aria-hidden", "true");
    cell.colSpan = columns;
    cell.style.height = count * ROW + "px";
    line.append(cell);
    return line;
  }
  Grid.prototype.line = function (row, place) {
    var grid = this, isVirtual = this.page.virtual[row] === 1;
    var line = make("tr", isVirtual ? "virtual-ground" : "");
    line.setAttribute("aria-rowindex", place + 2);
    this.columns.forEach(function (column, index) {
      var cell = make(index ? "td" : "th"), text = grid.text(column, row);
      if (!index) { cell.scope = "row"; }
      if (column.kind === "number") {
        cell.className = column.values[row] === null ? "n nothing" : "n";
        if (column.tones) { cell.className += " " + column.tones.words[column.tones.places[row]]; }
        if (column.bars && column.bars[row]) {
          cell.classList.add("bar-cell");
          cell.style.setProperty("--part", 100 * column.bars[row] + "%");
        }
        if (column.signed && Math.abs(column.values[row]) >= 2) { cell.classList.add(column.values[row] > 0 ? "is-slower" : "is-faster"); }
        if (column.cases && column.cases[row]) {
          var opener = make("a", "open", text);
          opener.href = "#c-" + column.cases[row];
          cell.append(opener);
        } else { cell.textContent = text; }
      } else if (column.kind === "picture") {
        cell.append(report.fragment(grid.word(column, row)));
      } else if (column.kind === "badge") {
        if (text) { cell.append(make("span", "badge " + grid.word(column, row).split("|")[0], text)); }
      } else {
        var name = make("bdi", text.length > KEPT ? "name" : "name keep", text);
        if (column.kind === "case") {
          var link = make("a", "open");
          link.href = grid.page.link[0] + grid.key(row) + grid.page.link[1];
          link.append(name);
          cell.append(link);
        } else { cell.append(name); }
        if (grid.isLong) { cell.title = text; }
      }
      if (!index && isVirtual) { cell.append(" ", make("span", "badge virtual", "virtual")); }
      if (!index && grid.apart) { cell.append(grid.toldApart(row)); }
      line.append(cell);
    });
    return line;
  };

  /* What tells a row from others of its name. */
  Grid.prototype.toldApart = function (row) {
    var grid = this;
    var words = this.apart.map(function (name) {
      var column = grid.columns.find(function (item) { return item.name === name; });
      return column && grid.text(column, row);
    }).filter(Boolean);
    return words.length ? make("small", "apart narrow-only", words.join(", ")) : "";
  };

  function isWords(column) { return column.kind !== "picture"; }
  function title(column) { return column.unit ? column.label + " (" + column.unit + ")" : column.label; }
  Grid.prototype.saveCsv = function () {
    var grid = this;
    var field = function (text) { return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text; };
    /* A spreadsheet takes a cell that begins like this as a formula. */
    var word = function (text) { return field(/^[=+\-@\t\r]/.test(text) ? "'" + text : text); };
    var columns = this.page.columns.filter(isWords);
    var lines = [columns.map(title).map(word).concat("is virtual", "case")].concat(this.rows.map(function (row) {
      return columns.map(function (column) {
        if (column.kind === "number") { return column.values[row] === null ? "" : String(column.values[row]); }
        return word(grid.text(column, row));
      }).concat(grid.page.virtual[row] ? "true" : "false", grid.key(row));
    }));
    report.save("benchfarm-" + this.host.dataset.grid + ".csv", "text/csv", lines.map(function (line) { return line.join(","); }).join("\n") + "\n");
  };
  Grid.prototype.markdown = function () {
    var grid = this, columns = this.columns.filter(isWords);
    return report.markdown(columns.map(title), columns.map(function (column) { return column.kind === "number"; }), this.rows.map(function (row) {
      return columns.map(function (column) {
        return grid.text(column, row) + (column === grid.columns[0] && grid.page.virtual[row] ? " (virtual)" : "");
      });
    }));
  };

  /* A small table without rows, which tables.js makes ready. */
  report.frame = function (caption, heads) {
    var holder = make("div", "scroll"), table = make("table", "whole small"), head = make("thead"), line = make("tr");
    holder.tabIndex = 0;
    holder.setAttribute("role", "region");
    holder.setAttribute("aria-label", caption);
    heads.forEach(function (cell) {
      cell.scope = "col";
      line.append(cell);
    });
    head.append(line);
    table.append(make("caption", "unseen", caption), head, make("tbody"));
    holder.append(table);
    return table;
  };
  /* Some rows of a table's data as one of these: without columns that say nothing of them, and some
     columns that say one word of all of them in a line below. */
  report.rows = function (page, from, to, merged) {
    var grid = Object.create(Grid.prototype), same = [];
    grid.page = page;
    grid.columns = page.columns.filter(function (column) {
      var words = [];
      for (var row = from; row < to; row += 1) { words.push(grid.text(column, row)); }
      if (words.every(isNothing)) { return false; }
      var isSame = words.length > 1 && merged.indexOf(column.name) !== -1 && new Set(words).size === 1;
      if (isSame) { same.push(column.label + " " + words[0]); }
      return !isSame;
    });
    var table = report.frame(page.caption, grid.columns.map(function (column) {
      var cell = make("th", column.kind === "number" ? "n" : "", column.label);
      if (column.unit) { cell.append(" ", make("small", "", column.unit)); }
      return cell;
    }));
    for (var row = from; row < to; row += 1) {
      var line = grid.line(row, row - from);
      if (page.judged && !page.judged[row]) { line.className = "unused"; }
      [].forEach.call(line.cells, function (cell) { cell.classList.toggle("words", cell.textContent.length > 30); });
      table.tBodies[0].append(line);
    }
    return { table: table, parts: [table.parentElement].concat(same.length ? [allRows(same)] : []) };
  };

  document.querySelectorAll("[data-grid]").forEach(function (host) {
    report.whenSeen(host, function () {
      report.data(host.dataset.grid).then(function (page) {
        var grid = new Grid(host, page);
        var chooser = host.dataset.groups && report.byId(host.dataset.groups);
        if (!chooser) { return; }
        var choose = function () {
          grid.group = chooser.value;
          grid.refresh();
          document.querySelectorAll("[data-pair]").forEach(function (item) { item.hidden = item.dataset.pair !== chooser.value; });
        };
        chooser.addEventListener("change", choose);
        choose();
      });
    });
  });
  document.addEventListener("report-chosen", function () { grids.forEach(function (grid) { grid.refresh(); }); });
  window.addEventListener("beforeprint", function () {
    grids.forEach(function (grid) { if (grid.isLong) { grid.fill(0, Math.min(grid.rows.length, PRINTED)); } });
  });
  window.addEventListener("afterprint", function () {
    grids.forEach(function (grid) { grid.drawnFrom = -1; grid.draw(); });
  });
})();

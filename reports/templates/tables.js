/* The page's tables, as tables/html.py wrote them: rows are sorted, searched, chosen, hidden, copied and saved.
   Of a packed table, cells are made of their HTML once they are seen. */
(function () {
  var make = report.element, collator = new Intl.Collator(undefined, { numeric: true });
  /* Of a packed table with more rows, only those in view are in the document, so that their number doesn't matter. */
  var ALL_DRAWN = 300, BEYOND = 15, PRINTED = 1000, ROW = 34;
  var FEW = 12, TALL = 40, MOST_CHOICES = 200, WIDEST = 40;
  var chosen = { model: "", device: "" };

  function isNothing(word) { return !word || word === "---"; }
  /* A cell's words; a row's head without what is said of the whole row. */
  function text(cell) {
    if (cell.tagName === "TD" || !cell.querySelector(".virtual, .apart")) { return cell.textContent.trim(); }
    return Array.from(cell.childNodes, function (node) {
      return node.matches && node.matches(".virtual, .apart") ? "" : node.textContent;
    }).join("").trim();
  }
  function isVirtual(row) { return row.frame.classList.contains("virtual-ground"); }
  function isUnclean(row) { return row.frame.classList.contains("unclean"); }

  function Table(element, packed) {
    var self = this;
    this.element = element;
    this.caption = element.caption.textContent;
    this.view = element.parentElement;
    this.body = element.tBodies[0];
    var starts = packed && Array.from(report.fragment(packed.rows.pieces.join("")).children);
    /* Of a row: the element with its attributes, and the one with its cells, too, once it is seen. */
    this.rows = packed ? packed.rows.places.map(function (number, place) {
      return { place: place, frame: starts[number], link: packed.links[place] };
    }) :
      Array.from(this.body.rows, function (row) { return { frame: row, element: row }; });
    this.isLong = Boolean(packed) && this.rows.length > ALL_DRAWN;
    this.words = new Map();
    this.group = null;
    this.sorted = null;
    this.columns = Array.from(element.tHead.rows[0].cells, function (head, place) {
      var unit = head.querySelector("small"), title = text(head);
      var label = unit ? title.slice(0, -unit.textContent.length).trim() : title;
      return {
        head: head, place: place, name: head.dataset.name, label: label, title: unit ? label + " (" + unit.textContent + ")" : label,
        isNumber: head.classList.contains("n"), isPicture: head.classList.contains("picture"),
        packed: packed && packed.columns[place]
      };
    });
    this.columns.forEach(function (column) {
      if (column.isPicture || !column.label) { return; }
      var button = make("button", "sort");
      button.type = "button";
      button.append.apply(button, Array.from(column.head.childNodes));
      button.addEventListener("click", function () {
        self.sort(column, column.head.getAttribute("aria-sort") === "ascending" ? -1 : 1);
      });
      column.head.append(button);
    });
    if (packed) { this.makeForm(); }
    else {
      var tools = make("div", "table-tools");
      tools.append(this.copier("small"));
      this.view.after(tools);
    }
    if (this.isLong) { this.makeLong(); }
    element.control = this;
    /* All rows of a table that the page was written with are in it already. */
    this.shown = this.rows;
    if (packed || chosen.model || chosen.device) { this.refresh(); }
  }

  /* Of a packed cell: its HTML, and its words or its value. */
  function pieceOf(row, column) { return column.packed.pieces[column.packed.places[row.place]]; }
  function valueOf(row, column) { return column.packed ? pieceOf(row, column)[1] : text(row.element.cells[column.place]); }
  /* The element of a row with its cells. */
  Table.prototype.whole = function (row) {
    if (!row.element) {
      row.element = row.frame.cloneNode();
      row.element.append(report.fragment(this.columns.map(function (column) { return pieceOf(row, column)[0]; }).join("")));
      row.element.querySelectorAll("a[href='#']").forEach(function (opener) { opener.setAttribute("href", row.link); });
    }
    return row.element;
  };

  function labelled(words, control) {
    var label = make("label", "", words + " ");
    label.append(control);
    control.setAttribute("aria-label", words);
    return label;
  }
  function chooser(options) {
    var select = make("select");
    options.forEach(function (option) { select.append(new Option(option[0], option[1])); });
    return select;
  }
  function action(words, look, act) {
    var button = make("button", look, words);
    button.type = "button";
    button.addEventListener("click", function () { act(button); });
    return button;
  }
  Table.prototype.copier = function (look) {
    var self = this;
    return action("Copy as Markdown", look, function (button) { report.copied(button, self.markdown()); });
  };

  Table.prototype.makeForm = function () {
    var self = this, form = make("form", "filter"), choices = make("div");
    form.setAttribute("role", "search");
    form.setAttribute("aria-label", this.caption);
    this.search = make("input");
    this.search.type = "search";
    this.search.autocomplete = "off";
    this.search.placeholder = "any words";
    form.append(labelled("Search", this.search));
    var unclean = this.rows.some(isUnclean);
    if (unclean) {
      this.judged = chooser([["all", ""], ["clean", "1"], ["not clean", "0"]]);
      form.append(labelled("Show", this.judged));
    }
    if (new Set(this.rows.map(isVirtual)).size > 1) {
      this.real = make("input");
      this.real.type = "checkbox";
      var label = make("label");
      label.append(this.real, " real devices only");
      form.append(label);
    }
    this.sortBy = chooser([[this.element.dataset.order, ""]]);
    this.columns.forEach(function (column) {
      if (column.isPicture || column.head.hidden) { return; }
      self.sortBy.append(new Option(column.title + " ▲", column.place + " 1"), new Option(column.title + " ▼", column.place + " -1"));
    });
    this.sortBy.addEventListener("change", function () {
      var parts = self.sortBy.value.split(" ").map(Number);
      self.sort(self.sortBy.value ? self.columns[parts[0]] : null, parts[1]);
    });
    var sortLabel = labelled("Sort by", this.sortBy);
    sortLabel.classList.add("narrow-only");
    this.counts = make("output");
    this.counts.setAttribute("aria-live", "polite");
    form.append(sortLabel, this.counts, action("Save as CSV", "", function () { self.saveCsv(); }), this.copier(""));
    this.choices = [];
    this.columns.forEach(function (column) {
      if (column.head.hidden || self.rows.length < FEW) { return; }
      var words = column.packed.choices.filter(Boolean);
      if (words.length < 2 || words.length > MOST_CHOICES) { return; }
      var select = chooser([["all", ""]].concat(words.sort(collator.compare).map(function (word) { return [word, word]; })));
      self.choices.push({ column: column, select: select });
      choices.append(labelled(column.label, select));
    });
    if (this.choices.length) {
      var folded = make("details", "choices");
      folded.append(make("summary", "", "Choose by " + this.choices.map(function (item) { return item.column.label; }).join(", ")), choices);
      form.append(folded);
    }
    form.addEventListener("input", function (event) { if (event.target !== self.sortBy) { self.refresh(); } });
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    this.view.before(form);
    this.view.classList.add("view");
    this.view.classList.toggle("tall", this.rows.length > TALL);
  };

  /* Columns of a long table keep their widths, whatever rows are in view. */
  Table.prototype.makeLong = function () {
    var self = this, widths = make("colgroup"), sum = 0, isPending = false;
    this.element.classList.add("long");
    this.element.setAttribute("aria-rowcount", this.rows.length + 1);
    this.columns.forEach(function (column) {
      if (column.head.hidden) { return; }
      var longest = Math.max(column.packed.width || 17, column.label.length + 2, column.isNumber ? 9 : 0);
      var col = make("col"), width = Math.min(longest, WIDEST) + 3;
      col.style.width = width + "ch";
      sum += width;
      widths.append(col);
    });
    this.element.caption.after(widths);
    this.element.style.width = sum + "ch";
    this.view.addEventListener("scroll", function () {
      if (isPending) { return; }
      isPending = true;
      requestAnimationFrame(function () { isPending = false; self.draw(); });
    }, { passive: true });
    this.view.addEventListener("mouseover", function (event) {
      var cell = event.target.closest("td, th");
      if (cell && cell.scrollWidth > cell.clientWidth) { cell.title = text(cell); }
    });
  };

  Table.prototype.sort = function (column, direction) {
    this.sorted = column && [column, direction];
    this.columns.forEach(function (other) {
      if (other === column) { other.head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending"); }
      else { other.head.removeAttribute("aria-sort"); }
    });
    if (this.sortBy) { this.sortBy.value = column ? column.place + " " + direction : ""; }
    this.refresh();
  };
  /* Figures go by their value, all else by its words; what is missing stays at the end. */
  function inOrder(rows, column, direction) {
    var items = rows.map(function (row, place) {
      var word = valueOf(row, column), value = parseFloat(word);
      return { row: row, place: place, word: word, value: value, isMissing: column.isNumber ? isNaN(value) : isNothing(word) };
    });
    items.sort(function (a, b) {
      if (a.isMissing || b.isMissing) { return a.isMissing - b.isMissing || a.place - b.place; }
      if (isNaN(a.value) !== isNaN(b.value)) { return isNaN(a.value) ? 1 : -1; }
      var difference = a.value - b.value || (a.word === b.word ? 0 : collator.compare(a.word, b.word));
      return direction * difference || a.place - b.place;
    });
    return items.map(function (item) { return item.row; });
  }

  /* The words of a row to search in, in small letters. */
  Table.prototype.wordsOf = function (row) {
    if (!this.words.has(row)) {
      var columns = this.columns.filter(function (column) { return !column.isNumber && !column.isPicture; });
      this.words.set(row, columns.map(function (column) { return valueOf(row, column); }).join("\n").toLowerCase());
    }
    return this.words.get(row);
  };
  /* What the page's chips choose: a model, a kind of device, behind which a serial number may stand. */
  Table.prototype.isChosen = function (row) {
    var columns = this.columns;
    return ["model", "device"].every(function (name) {
      var column = chosen[name] && columns.find(function (item) { return item.name === name; });
      if (!chosen[name] || !column && !row.frame.dataset[name]) { return true; }
      var word = row.frame.dataset[name] || valueOf(row, column);
      return word === chosen[name] || word.indexOf(chosen[name] + " (") === 0;
    });
  };
  Table.prototype.fits = function (row, words) {
    var self = this;
    if (this.real && this.real.checked && isVirtual(row)) { return false; }
    if (this.judged && this.judged.value && isUnclean(row) !== (this.judged.value === "0")) { return false; }
    return this.isChosen(row) && (this.choices || []).every(function (item) {
      return !item.select.value || valueOf(row, item.column) === item.select.value;
    }) && words.every(function (word) { return self.wordsOf(row).indexOf(word) !== -1; });
  };
  /* Which rows are shown, in which order. */
  Table.prototype.refresh = function () {
    var self = this, group = this.group;
    var words = this.search ? this.search.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    var rows = group === null ? this.rows : this.rows.filter(function (row) { return row.frame.dataset.group === group; });
    this.shown = rows.filter(function (row) { return self.fits(row, words); });
    if (this.sorted) { this.shown = inOrder(this.shown, this.sorted[0], this.sorted[1]); }
    if (this.counts) { this.counts.textContent = "rows: " + this.shown.length + " of " + rows.length; }
    this.view.scrollTop = 0;
    this.drawnFrom = -1;
    this.draw();
  };
  Table.prototype.draw = function () {
    if (!this.isLong) { this.fill(0, this.shown.length); return; }
    var from = Math.max(0, Math.floor(this.view.scrollTop / ROW) - BEYOND);
    var to = Math.min(this.shown.length, from + Math.ceil((this.view.clientHeight || 700) / ROW) + 2 * BEYOND);
    if (from !== this.drawnFrom || to !== this.drawnTo) { this.fill(from, to); }
  };
  Table.prototype.fill = function (from, to) {
    var width = this.columns.length, left = this.shown.length - to;
    var rows = this.shown.slice(from, to).map(this.whole, this);
    this.drawnFrom = from;
    this.drawnTo = to;
    if (this.isLong) { rows.forEach(function (row, place) { row.setAttribute("aria-rowindex", from + place + 2); }); }
    if (from > 0) { rows.unshift(spacer(from, width)); }
    if (left > 0) { rows.push(spacer(left, width)); }
    if (!this.shown.length) {
      var line = make("tr"), cell = make("td", "empty", "No row fits.");
      cell.colSpan = width;
      line.append(cell);
      rows.push(line);
    }
    this.body.replaceChildren.apply(this.body, rows);
  };
  function spacer(count, columns) {
    var line = make("tr", "spacer"), cell = make("td");
    line.setAttribute("aria-hidden", "true");
    cell.colSpan = columns;
    cell.style.height = count * ROW + "px";
    line.append(cell);
    return line;
  }

  /* What all rows share is saved too; figures with more digits than are shown. */
  Table.prototype.saveCsv = function () {
    var columns = this.columns.filter(function (column) { return !column.isPicture; });
    var field = function (word) { return /[",\n\r]/.test(word) ? '"' + word.replace(/"/g, '""') + '"' : word; };
    /* A spreadsheet takes a cell that begins like this as a formula. */
    var safe = function (word) { return field(/^[=+\-@\t\r]/.test(word) ? "'" + word : word); };
    var lines = [columns.map(function (column) { return safe(column.title); }).concat("is virtual", "case")];
    this.shown.forEach(function (row) {
      lines.push(columns.map(function (column) {
        return column.isNumber ? valueOf(row, column) : safe(valueOf(row, column));
      }).concat(String(isVirtual(row)), field((row.link || "").replace(/^#c-|^.*\/|\.html$/g, ""))));
    });
    report.save("benchfarm-" + this.element.dataset.table + ".csv", "text/csv", lines.map(function (line) { return line.join(","); }).join("\n") + "\n");
  };
  Table.prototype.markdown = function () {
    var self = this, columns = this.columns.filter(function (column) { return !column.isPicture && !column.head.hidden; });
    return report.markdown(
      columns.map(function (column) { return column.title; }),
      columns.map(function (column) { return column.isNumber; }),
      this.shown.map(function (row) {
        var cells = self.whole(row).cells;
        return columns.map(function (column, place) { return text(cells[column.place]) + (!place && isVirtual(row) ? " (virtual)" : ""); });
      })
    );
  };

  /* The farm's page is written again every few seconds. */
  function all(scope, packed) {
    scope.querySelectorAll("[data-table]:not(#farm table)").forEach(function (element) { if (!element.control) { new Table(element, packed); } });
  }
  function each(act) {
    document.querySelectorAll("[data-table]").forEach(function (element) { if (element.control) { act(element.control); } });
  }

  var form = report.byId("chips");
  if (form) {
    form.addEventListener("click", function (event) {
      var chip = event.target.closest("[data-chip]");
      if (!chip) { return; }
      chosen[chip.closest("[data-chips]").dataset.chips] = chip.dataset.chip;
      chip.parentElement.querySelectorAll("[data-chip]").forEach(function (other) { other.setAttribute("aria-pressed", String(other === chip)); });
      each(function (table) { table.refresh(); });
      document.querySelectorAll(".model-block").forEach(function (block) {
        block.hidden = Boolean(chosen.model && block.dataset.model !== chosen.model);
        if (chosen.model && !block.hidden) { block.open = true; }
      });
    });
  }
  /* Shows one group of a table's rows: the one that the reader chose. */
  function byGroup(table, chooser) {
    var choose = function () {
      table.group = chooser.value;
      table.refresh();
      document.querySelectorAll("[data-pair]").forEach(function (item) { item.hidden = item.dataset.pair !== chooser.value; });
    };
    chooser.addEventListener("change", choose);
    choose();
  }
  /* Tables and pictures that the page holds folded until they are looked at. */
  document.querySelectorAll("[data-fold]").forEach(function (holder) {
    report.whenSeen(holder, function () {
      report.data(holder.dataset.fold).then(function (folded) {
        var made = report.fragment(folded.html);
        all(made, folded.rows && folded);
        holder.replaceChildren(made);
        if (holder.dataset.groups) { byGroup(holder.querySelector("table").control, report.byId(holder.dataset.groups)); }
        holder.classList.add("drawn");
      });
    });
  });
  window.addEventListener("beforeprint", function () {
    each(function (table) { if (table.isLong) { table.fill(0, Math.min(table.shown.length, PRINTED)); } });
  });
  window.addEventListener("afterprint", function () {
    each(function (table) { table.drawnFrom = -1; table.draw(); });
  });
  all(document);
  report.tables = all;
})();

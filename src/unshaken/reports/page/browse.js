"use strict";
// Pages through the examples. Texts from data enter the document through textContent alone.
(() => {
  const PAGE = 25;
  const data = JSON.parse(document.getElementById("data").textContent);
  const [SET, MODEL, CONDITION, EXAMPLE, OUTCOME, PREDICTION, BEFORE, AFTER, QUERIES, SIMILARITY, CHANGE] = Array(11).keys();
  const [ID, LABEL, GROUP, TEXTS] = Array(4).keys();
  const OUTCOMES = { success: "broken", failure: "held", error: "error", wrong: "wrong unattacked", right: "right unattacked" };
  const KINDS = { success: "bad", failure: "good", error: "plain", wrong: "bad", right: "plain" };
  const byId = (id) => document.getElementById(id);
  const controls = Object.fromEntries(["search", "condition", "outcome", "label", "model", "set"].map((id) => [id, byId(id)]));
  let matches = [];
  let page = 0;

  // Whether a person would still give a broken text its true label: "kept" or "changed", by what the text is.
  const STORE = `unshaken ratings ${document.title} ${data.key}`;
  let ratings = {};
  let isRating = false;
  try { ratings = JSON.parse(localStorage.getItem(STORE) ?? "{}"); } catch { /* no store for pages opened from a file */ }

  function element(tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function fill(select, choices) {
    for (const [value, text] of [["", "all"], ...choices]) {
      const option = element("option", "", text);
      option.value = value;
      select.append(option);
    }
    // A filter with one choice says nothing.
    select.closest("label").hidden = choices.length < 2;
  }

  const example = (row) => data.sets[row[SET]].examples[row[EXAMPLE]];
  const labelName = (row, label) => data.sets[row[SET]].labels[label] ?? String(label);
  const present = new Set(data.rows.map((row) => row[OUTCOME]));
  fill(controls.condition, data.conditions.map((name, index) => [String(index), name]));
  fill(controls.outcome, Object.entries(OUTCOMES).filter(([key]) => present.has(key)));
  const labels = new Set(data.sets.flatMap((set) => set.examples.map((item) => set.labels[item[LABEL]])));
  fill(controls.label, [...labels].sort().map((name) => [name, name]));
  fill(controls.model, data.models.map((name, index) => [String(index), name]));
  fill(controls.set, data.sets.map((set, index) => [String(index), set.name]));

  // Lower-case texts of a row, made when first searched: its example, and what was put into it.
  const haystacks = new Map();
  function haystack(row) {
    const key = `${row[SET]} ${row[EXAMPLE]}`;
    if (!haystacks.has(key)) {
      const item = example(row);
      haystacks.set(key, [item[ID], ...item.slice(TEXTS)].join("\n").toLowerCase());
    }
    const added = row[CHANGE] ? row[CHANGE].edits.flat().map((edit) => edit[2]).join("\n").toLowerCase() : "";
    return `${haystacks.get(key)}\n${added}`;
  }

  function filter() {
    const words = controls.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = Object.fromEntries(Object.entries(controls).map(([id, control]) => [id, control.value]));
    matches = data.rows.filter((row) =>
      (wanted.condition === "" || row[CONDITION] === Number(wanted.condition)) &&
      (wanted.outcome === "" || row[OUTCOME] === wanted.outcome) &&
      (wanted.label === "" || labelName(row, example(row)[LABEL]) === wanted.label) &&
      (wanted.model === "" || row[MODEL] === Number(wanted.model)) &&
      (wanted.set === "" || row[SET] === Number(wanted.set)) &&
      (words.length === 0 || words.every((word) => haystack(row).includes(word))));
    page = 0;
    show(words);
  }

  function show(words = controls.search.value.toLowerCase().split(/\s+/).filter(Boolean)) {
    const pages = Math.max(1, Math.ceil(matches.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    const first = page * PAGE;
    const rows = matches.slice(first, first + PAGE);
    byId("list").replaceChildren(...rows.map((row) => card(row, words)));
    byId("status").textContent = matches.length === 0
      ? "No example matches; widen a filter."
      : `${(first + 1).toLocaleString("en")}–${(first + rows.length).toLocaleString("en")} of ${matches.length.toLocaleString("en")}`;
    for (const suffix of ["", "-end"]) {
      byId(`previous${suffix}`).disabled = page === 0;
      byId(`next${suffix}`).disabled = page >= pages - 1;
    }
  }

  function card(row, words) {
    const item = example(row);
    const set = data.sets[row[SET]];
    const node = element("li");
    node.tabIndex = 0;
    const top = element("div", "top");
    top.append(element("span", `chip ${KINDS[row[OUTCOME]]}`, OUTCOMES[row[OUTCOME]]));
    top.append(element("span", "muted", data.conditions[row[CONDITION]]));
    const turn = element("span", "turn");
    const right = labelName(row, item[LABEL]);
    const said = labelName(row, row[PREDICTION]);
    turn.append("true: ", element("b", "", right));
    if (!isRating) turn.append(row[OUTCOME] === "success" ? " → now: " : " · answer: ", element("b", "", said));
    top.append(turn);
    const texts = item.slice(TEXTS);
    const before = row[CHANGE]?.from ?? texts;
    const after = before.map((text, column) => replaced(text, row[CHANGE]?.edits[column] ?? []));
    node.append(top);
    before.forEach((text, column) => {
      const paragraph = element("div", "text");
      if (before.length > 1) paragraph.append(element("span", "column", set.columns[column] ?? `text ${column + 1}`));
      difference(paragraph, text, row[CHANGE]?.edits[column] ?? [], words);
      node.append(paragraph);
    });
    const end = element("div", "end");
    end.append(element("span", "facts", facts(row, item, set)), element("span", "spacer"));
    if (row[CHANGE]) end.append(copyButton("Copy original", before), copyButton("Copy adversarial", after));
    else end.append(copyButton("Copy text", texts));
    if (isRating && row[OUTCOME] === "success") end.append(...rateButtons(row, node));
    node.append(end);
    return node;
  }

  const ratingKey = (row) => JSON.stringify([row[SET], row[MODEL], row[CONDITION], row[EXAMPLE]]);

  function rateButtons(row, node) {
    const buttons = [["kept", "Meaning kept"], ["changed", "Meaning changed"]].map(([verdict, text]) => {
      const button = element("button", "", text);
      button.type = "button";
      button.addEventListener("click", () => rate(ratings[ratingKey(row)] === verdict ? undefined : verdict));
      return [verdict, button];
    });
    const mark = () => { for (const [verdict, button] of buttons) button.setAttribute("aria-pressed", ratings[ratingKey(row)] === verdict); };
    const rate = (verdict) => {
      if (verdict) ratings[ratingKey(row)] = verdict; else delete ratings[ratingKey(row)];
      try { localStorage.setItem(STORE, JSON.stringify(ratings)); } catch { /* kept until the page is left */ }
      mark();
      tally();
    };
    mark();
    node.rate = rate;
    return buttons.map(([, button]) => button);
  }

  // All broken texts with what was said of them.
  function rated() {
    return data.rows.filter((row) => row[OUTCOME] === "success").map((row) => ({
      model: data.models[row[MODEL]], data: data.sets[row[SET]].name, attack: data.conditions[row[CONDITION]], id: example(row)[ID],
      label: labelName(row, example(row)[LABEL]), answer: labelName(row, row[PREDICTION]), meaning: ratings[ratingKey(row)] ?? "",
      text: example(row).slice(TEXTS).map((text, column) => replaced(text, row[CHANGE]?.edits[column] ?? [])).join("\n"),
    }));
  }

  function tally() {
    const counts = new Map();
    for (const item of rated()) {
      const key = data.models.length > 1 ? `${item.attack} on ${item.model}` : item.attack;
      const count = counts.get(key) ?? { broken: 0, kept: 0, changed: 0 };
      count.broken += 1;
      if (item.meaning) count[item.meaning] += 1;
      counts.set(key, count);
    }
    const parts = [...counts].map(([key, { broken, kept, changed }]) => `${key}: ${kept} valid of ${kept + changed} rated (${broken} broken)`);
    byId("tally").textContent = parts.join(" · ") || "Nothing was broken, so there is nothing to rate.";
  }

  function download(name, type, text) {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // A spreadsheet runs what starts like a formula, unless an apostrophe stands before it.
  const cell = (value) => `"${String(value).replace(/^[=+\-@\t\r\n＝＋－＠]/, "'$&").replace(/"/g, '""')}"`;
  const COLUMNS = ["model", "data", "attack", "id", "label", "answer", "meaning", "text"];
  byId("export-json").addEventListener("click", () => download("ratings.json", "application/json", JSON.stringify(rated(), null, 1)));
  byId("export-csv").addEventListener("click", () =>
    download("ratings.csv", "text/csv", [COLUMNS, ...rated().map((item) => COLUMNS.map((name) => item[name]))].map((row) => row.map(cell).join(",")).join("\r\n")));
  byId("rate").addEventListener("click", () => {
    isRating = !isRating;
    byId("rate").setAttribute("aria-pressed", isRating);
    byId("ratings").hidden = !isRating;
    if (isRating) { controls.outcome.value = "success"; filter(); tally(); } else show();
  });

  function facts(row, item, set) {
    const probability = (value) => value.toFixed(3);
    const parts = [`id ${item[ID]}`];
    if (data.sets.length > 1) parts.push(set.name);
    if (data.models.length > 1) parts.push(data.models[row[MODEL]]);
    if (item[GROUP] !== null) parts.push(item[GROUP]);
    if (isRating) return parts.join(" · ");
    if (row[AFTER] !== null) parts.push(`probability of the true label ${probability(row[BEFORE])} → ${probability(row[AFTER])}`);
    else if (row[BEFORE] !== null) parts.push(`${row[QUERIES] === null ? "confidence" : "probability of the true label"} ${probability(row[BEFORE])}`);
    if (row[QUERIES] !== null) parts.push(`${row[QUERIES].toLocaleString("en")} queries`);
    if (row[SIMILARITY] !== null) parts.push(`similarity ${row[SIMILARITY].toFixed(3)}`);
    return parts.join(" · ");
  }

  function replaced(text, edits) {
    let result = "";
    let end = 0;
    for (const [start, stop, added] of edits) {
      result += text.slice(end, start) + added;
      end = stop;
    }
    return result + text.slice(end);
  }

  function difference(parent, text, edits, words) {
    let end = 0;
    for (const [start, stop, added] of edits) {
      highlight(parent, text.slice(end, start), words);
      if (stop > start) parent.append(element("del", "", text.slice(start, stop)));
      if (stop > start && added) parent.append(" ");
      if (added) parent.append(element("ins", "", added));
      end = stop;
    }
    highlight(parent, text.slice(end), words);
  }

  function highlight(parent, text, words) {
    if (words.length === 0) return void parent.append(text);
    const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    text.split(new RegExp(`(${escaped.join("|")})`, "i")).forEach((part, index) => parent.append(index % 2 ? element("mark", "", part) : part));
  }

  function copyButton(text, texts) {
    const button = element("button", "", text);
    button.type = "button";
    button.addEventListener("click", async () => {
      const done = await copy(texts.join("\n"));
      button.textContent = done ? "Copied" : "Not allowed here";
      setTimeout(() => { button.textContent = text; }, 1500);
    });
    return button;
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Pages opened from a file may lack the clipboard interface.
      const area = element("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  function turn(step) {
    page += step;
    show();
    byId("examples").scrollIntoView();
  }

  let timer;
  controls.search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(filter, 120); });
  for (const id of ["condition", "outcome", "label", "model", "set"]) controls[id].addEventListener("change", filter);
  for (const suffix of ["", "-end"]) {
    byId(`previous${suffix}`).addEventListener("click", () => turn(-1));
    byId(`next${suffix}`).addEventListener("click", () => turn(1));
  }
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape" && event.target === controls.search) { controls.search.value = ""; filter(); }
    if (isTyping) return;
    if (event.key === "/") { event.preventDefault(); controls.search.focus(); }
    else if (event.key === "n" && !byId("next").disabled) turn(1);
    else if (event.key === "p" && !byId("previous").disabled) turn(-1);
    else if (isRating && /^[012]$/.test(event.key)) document.activeElement?.closest("#list > li")?.rate?.([undefined, "kept", "changed"][event.key]);
    else if (event.key === "j" || event.key === "k") {
      const cards = [...byId("list").children];
      const here = cards.indexOf(document.activeElement?.closest("#list > li"));
      const next = cards[here + (event.key === "j" ? 1 : here < 0 ? 1 : -1)];
      if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
    }
  });
  byId("rate").hidden = !present.has("success");
  if (present.has("success")) controls.outcome.value = "success";
  filter();
})();

"use strict";
const known = JSON.parse(document.getElementById("data").textContent), token = new URLSearchParams(location.search).get("token"), $ = (id) => document.getElementById(id);
const make = (tag, className, text) => { const item = document.createElement(tag); if (className) item.className = className; if (text) item.textContent = text; return item; };
// Words with what stood there before; blanks keep them apart for those who listen or copy, too.
const change = (part, before) => {
  const was = make("del", part.text ? "" : "gone", part.was), now = make("ins", "", part.text);
  if (part.text) return part.was ? [was, " ", now] : [now];
  return /\S$/.test(before) ? [" ", was] : [was, " "];
};
for (const name of known.attacks) $("attack").append(new Option(name));

class Panel {
  constructor(model) {
    this.model = model; this.steps = []; this.source = null;
    this.box = make("section", "panel"); this.box.setAttribute("aria-label", model);
    this.said = make("p", "said"); this.said.setAttribute("aria-live", "polite");
    this.bar = make("progress"); this.bar.max = 1; this.bar.hidden = true; this.bar.setAttribute("aria-label", "probability of the first answer");
    this.read = make("p", "muted read"); this.read.hidden = true; this.note = make("p", "muted note", "What an attack makes of the sentence will stand here."); this.range = make("input"); this.range.type = "range"; this.range.min = 0; this.range.max = 0;
    this.range.setAttribute("aria-label", "step"); this.range.oninput = () => this.show(+this.range.value);
    this.copy = make("button", "", "Copy"); this.copy.type = "button"; this.copy.onclick = async () => { await navigator.clipboard.writeText(this.steps[+this.range.value]?.text ?? ""); this.copy.textContent = "Copied"; };
    this.first = make("p", "muted first"); this.step = make("p", "muted step"); this.tools = make("div"); this.tools.hidden = true; this.tools.append(this.step, this.range, this.copy);
    this.box.append(make("h2", "", model), this.said, this.read, this.first, this.bar, this.note, this.tools); $("panels").append(this.box);
  }
  start(text, attack) {
    this.stop(); this.steps = []; this.note.textContent = "asking ..."; this.note.className = "muted note";
    const query = new URLSearchParams({ token, model: this.model, attack, text });
    this.source = new EventSource("/attack?" + query);
    this.source.onmessage = (event) => this.hear(JSON.parse(event.data));
    this.source.onerror = () => { this.stop(); this.note.textContent = "No answer: is unshaken play still running?"; done(); };
  }
  hear(step) {
    if (step.kind === "error") { this.note.textContent = step.message; this.stop(); done(); return; }
    if (step.kind === "start") { this.labels = step.labels; this.label = step.label; }
    this.steps.push(step); this.range.max = this.steps.length - 1; this.range.value = this.steps.length - 1; this.show(this.steps.length - 1);
    if (step.kind === "end") { this.stop(); done(); }
  }
  show(index) {
    const step = this.steps[index]; if (!step) return;
    this.said.replaceChildren(...step.parts.flatMap((part, at) => part.was === undefined ? [part.text] : change(part, step.parts[at - 1]?.text ?? "")));
    this.read.hidden = !step.read; this.read.textContent = step.read ? "The model reads: " + step.read : "";
    const name = (label) => this.labels[label] ?? "class " + label, percent = (label) => (100 * step.probabilities[label]).toFixed(0) + "%", share = percent(step.answer);
    this.bar.hidden = false; this.bar.value = step.probabilities[this.label]; this.first.textContent = `How sure the model is of its first answer, ${name(this.label)}: ${percent(this.label)}`;
    this.tools.hidden = false; this.step.textContent = index ? `Step ${index} of ${this.steps.length - 1}: drag to go back` : "The sentence as typed" + (this.steps.length > 1 ? `, before ${this.steps.length - 1} step${this.steps.length > 2 ? "s" : ""}` : ""); this.copy.textContent = "Copy";
    const end = step.kind === "end" ? (step.flipped ? "Turned around: " : "Held: ") : "";
    this.note.textContent = `${end}${name(step.answer)} (${share}), ${step.asked} texts asked`;
    this.note.className = "note " + (step.kind !== "end" ? "muted" : step.flipped ? "flipped" : "held");
  }
  stop() { if (this.source) this.source.close(); this.source = null; }
}
const panels = known.models.map((model) => new Panel(model));
const done = () => { const running = panels.some((panel) => panel.source); $("run").disabled = running; $("stop").disabled = !running; };
const attack = () => { const text = $("text").value.trim(); if (!text) { $("text").focus(); return; } for (const panel of panels) panel.start(text, $("attack").value); done(); };
$("form").onsubmit = (event) => { event.preventDefault(); attack(); };
$("text").onkeydown = (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); attack(); } };
$("stop").onclick = () => { for (const panel of panels) { if (panel.source) panel.note.textContent = "Stopped. " + panel.note.textContent.replace("asking ...", ""); panel.stop(); } done(); };

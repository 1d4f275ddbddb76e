// Makes the cells of a page editable and runs them. Python runs in a worker, so that the page stays alive and an
// endless loop can be stopped. Whenever Python starts, the page's first cell runs first: it imports what others use.
const RECORDS = "fourranks-records";
const cells = [...document.querySelectorAll(".cell")].map(makeEditable);
let worker = null;
let running = null; // the cell that Python works on

function makeEditable(box) {
  const input = box.querySelector(".cell_input");
  const editor = document.createElement("textarea");
  const button = document.createElement("button");
  const fit = () => (editor.rows = editor.value.split("\n").length);
  editor.value = input.innerText.trimEnd();
  editor.spellcheck = false;
  editor.setAttribute("aria-label", "Python cell");
  button.textContent = "Run";
  input.replaceChildren(editor, button);
  fit();
  const cell = { box, editor, button };
  editor.addEventListener("input", fit);
  editor.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.shiftKey) return;
    event.preventDefault();
    run(cell);
  });
  button.addEventListener("click", () => (running === cell ? stop() : run(cell)));
  return cell;
}

function run(cell) {
  if (running) return;
  running = cell;
  cell.button.textContent = "Stop";
  show(cell, worker ? "Running." : "Loading Python.");
  worker ??= startPython();
  worker.postMessage(cell.editor.value);
}

function startPython() {
  const started = new Worker(new URL("cells_worker.js", import.meta.url), { type: "module" });
  started.onmessage = ({ data }) => (data.failed ? fail(data.failed) : succeed(data));
  started.onerror = (event) => fail(event.message);
  started.postMessage({ setUp: cells[0].editor.value, records: localStorage.getItem(RECORDS) });
  return started;
}

function succeed({ html, records }) {
  if (records) localStorage.setItem(RECORDS, records);
  finish(html);
}

function fail(reason) {
  console.error(reason);
  end();
  finish("Python could not be loaded. Try again; the browser's console has the reason.");
}

function stop() {
  end();
  finish("Stopped. The next run starts a new Python. Your records are kept.");
}

function end() {
  worker.terminate();
  worker = null;
}

function finish(html) {
  running.button.textContent = "Run";
  show(running, html);
  running = null;
}

function show({ box }, html) {
  const output = box.querySelector(".cell_output") ?? box.appendChild(document.createElement("div"));
  output.className = "cell_output";
  output.innerHTML = `<div class="output" aria-live="polite">${html}</div>`;
}

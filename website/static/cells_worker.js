// Runs cells by Pyodide. The first message says how the page begins, each further one is a cell.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const FILE = "puzzle_records.json"; // of fourranks.puzzles, in the folder where Python runs
let cells = null; // resolves to the function that runs a cell
let files = null;

async function start({ setUp, records }) {
  const python = await loadPyodide();
  const modules = await fetch(new URL("modules.zip", import.meta.url));
  python.unpackArchive(await modules.arrayBuffer(), "zip");
  files = python.FS;
  if (records) files.writeFile(FILE, records);
  const { run } = python.pyimport("run_cell");
  run(setUp);
  return run;
}

function records() {
  return files.analyzePath(FILE).exists ? files.readFile(FILE, { encoding: "utf8" }) : "";
}

onmessage = async ({ data }) => {
  if (typeof data !== "string") {
    cells = start(data);
    return;
  }
  try {
    const run = await cells;
    postMessage({ html: run(data), records: records() });
  } catch (error) {
    postMessage({ failed: String(error) });
  }
};

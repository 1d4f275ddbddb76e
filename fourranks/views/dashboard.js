// The dashboard. A notebook's output is a table of the ranks; while the widget's kernel lives, a view stands in
// the table's place. It draws `frame`, and asks to be served as long as somebody can see it.

const ASK_EVERY = 1500; // ms; the kernel serves a view for some seconds after it asked
const DEAF_AFTER = 6000; // ms without an answer after which the buttons rest
const DEAF = "This is how it was. The kernel does not answer; if it was restarted, run %ranks dashboard again.";
const SURE_WITHIN = 4000; // ms in which a second press of a button that costs variables counts
const COLUMN = 2; // pixels of a moment in the strip

const ACTIONS = {
  interrupt: { text: "Interrupt", hint: "Stop the cell that runs; variables live on" },
  restart: { text: "Restart", hint: "Start all ranks again", sure: "Restart: lose all variables?" },
  stop: { text: "Stop", hint: "End all ranks", sure: "Stop: lose all variables?" },
};
const NAMES = {
  rank: { text: "rank" },
  sign: { text: "" },
  what: { text: "what it does, and in which line" },
  rate: { text: "traffic", hint: "Bytes that the rank hands to collectives and sends, per second" },
  memory: { text: "memory", hint: "Resident memory of the rank's process" },
  past: { text: "" },
};
const SIGNS = { computing: "●", waiting: "◔", finished: "✓", idle: "–", dead: "✕" };

class View {
  constructor(model, el) {
    this.model = model;
    this.unanswered = Infinity; // when it first asked since the last answer; nobody asks out of sight
    this.rows = [];
    this.table = el.firstElementChild;
    this.table.hidden = true;
    this.root = add(el, "div", "fourranks-dashboard");
    this.buildHead();
    this.buildNames();
    this.body = add(this.root, "div", "ranks");
    this.buildLegend();
    this.onFrame = () => this.drawWhenSeen();
    this.onHeard = () => (this.unanswered = Infinity);
    this.onNotice = () => (this.notice.textContent = model.get("notice"));
    this.onLook = () => this.ask();
    model.on("change:frame", this.onFrame);
    model.on("change:notice", this.onNotice);
    model.on("msg:custom", this.onHeard);
    document.addEventListener("visibilitychange", this.onLook);
    this.observer = new IntersectionObserver((entries) => {
      this.onScreen = entries[entries.length - 1].isIntersecting;
      this.ask();
    });
    this.observer.observe(this.root);
    this.timer = setInterval(this.onLook, ASK_EVERY);
    this.draw();
    this.onNotice();
  }

  end() {
    clearInterval(this.timer);
    this.observer.disconnect();
    document.removeEventListener("visibilitychange", this.onLook);
    this.model.off("change:frame", this.onFrame);
    this.model.off("change:notice", this.onNotice);
    this.model.off("msg:custom", this.onHeard);
    this.root.remove();
    this.table.hidden = false;
  }

  get seen() {
    return this.onScreen && document.visibilityState === "visible";
  }

  ask() {
    if (!this.seen) return;
    this.unanswered = Math.min(this.unanswered, performance.now());
    this.send({ ask: "serve" });
    this.draw();
  }

  send(message) {
    try {
      this.model.send(message);
    } catch {
      this.unanswered = -Infinity; // the kernel is gone
    }
  }

  buildHead() {
    const head = add(this.root, "div", "head");
    this.title = add(head, "span", "title");
    this.notice = add(head, "span", "notice");
    this.buttons = {};
    for (const [action, { hint }] of Object.entries(ACTIONS)) {
      const button = (this.buttons[action] = add(head, "button", action));
      button.title = hint;
      button.onclick = () => this.press(action);
      this.relax(action);
    }
  }

  press(action) {
    const button = this.buttons[action];
    const { sure } = ACTIONS[action];
    if (sure && !button.classList.contains("sure")) {
      button.textContent = sure;
      button.classList.add("sure");
      setTimeout(() => this.relax(action), SURE_WITHIN);
      return;
    }
    this.relax(action);
    this.send({ ask: action });
  }

  relax(action) {
    this.buttons[action].textContent = ACTIONS[action].text;
    this.buttons[action].classList.remove("sure");
  }

  buildNames() {
    this.names = add(this.root, "div", "lane names");
    for (const [name, { text, hint = "" }] of Object.entries(NAMES)) {
      const cell = add(this.names, "div", name);
      cell.textContent = text;
      cell.title = hint;
    }
  }

  buildLegend() {
    this.legend = add(this.root, "div", "legend");
    for (const state of ["computing", "waiting"]) {
      add(this.legend, "span", `swatch ${state}`);
      add(this.legend, "span").textContent = state;
    }
  }

  drawWhenSeen() {
    this.onHeard();
    if (this.seen) this.draw();
  }

  draw() {
    const { title = "", actions = [], ranks = [], seconds } = this.model.get("frame");
    const deaf = performance.now() - this.unanswered > DEAF_AFTER;
    set(this.title, deaf ? DEAF : title);
    for (const action in ACTIONS) this.buttons[action].disabled = deaf || !actions.includes(action);
    this.root.classList.toggle("many", ranks.length > 8);
    this.names.hidden = this.legend.hidden = ranks.length === 0;
    set(this.names.lastElementChild, `last ${seconds} s`);
    while (this.rows.length > ranks.length) this.rows.pop().remove();
    while (this.rows.length < ranks.length) this.rows.push(new Row(this.body));
    ranks.forEach((rank, index) => this.rows[index].draw(rank));
  }
}

class Row {
  constructor(body) {
    this.row = add(body, "div", "lane"); // no table: notebooks have rules of their own for those
    for (const name of ["rank", "sign", "what", "rate", "memory", "past"]) {
      this[name] = add(this.row, "div", name);
    }
    this.doing = add(this.what, "div", "doing");
    this.where = add(this.what, "div", "where");
    this.canvas = add(this.past, "canvas");
  }

  remove() {
    this.row.remove();
  }

  draw(rank) {
    if (this.row.dataset.state !== rank.state) this.row.dataset.state = rank.state;
    set(this.rank, String(rank.rank));
    this.rank.title = rank.node ? `on the node ${rank.node}` : "";
    set(this.sign, SIGNS[rank.state]);
    for (const name of ["doing", "where", "rate", "memory"]) set(this[name], rank[name]);
    this.doing.title = rank.doing;
    this.where.title = rank.where;
    this.drawStrip(rank.strip);
  }

  drawStrip(strip) {
    const style = getComputedStyle(this.canvas);
    const [computing, waiting] = ["--computing", "--waiting"].map((name) => style.getPropertyValue(name));
    const key = strip + computing;
    if (key === this.drawn) return;
    this.drawn = key;
    const scale = Math.ceil(window.devicePixelRatio);
    const [width, height] = [strip.length * COLUMN * scale, 18 * scale];
    if (this.canvas.width !== width) [this.canvas.width, this.canvas.height] = [width, height];
    this.canvas.style.width = `${strip.length * COLUMN}px`;
    const paint = this.canvas.getContext("2d");
    paint.clearRect(0, 0, width, height);
    [...strip].forEach((moment, index) => {
      if (moment === ".") return;
      const waited = Math.round((height * Number(moment)) / 9);
      paint.fillStyle = computing;
      paint.fillRect(index * COLUMN * scale, waited, COLUMN * scale, height - waited);
      paint.fillStyle = waiting;
      paint.fillRect(index * COLUMN * scale, 0, COLUMN * scale, waited);
    });
  }
}

function add(parent, tag, name = "") {
  const node = document.createElement(tag);
  node.className = name;
  parent.append(node);
  return node;
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export default { initialize: ({ model }) => followPlaces(model, View, "fourranks-dashboard") };

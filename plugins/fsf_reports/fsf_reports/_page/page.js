"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const said = document.getElementById("said");

  // Small helpers. Whatever comes from the report is set as text, never as markup.
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "text") made.textContent = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value === true ? "" : String(value));
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }
  function say(text) {
    said.textContent = "";
    setTimeout(() => { said.textContent = text; }, 30);
  }
  function inflated(base64) {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    return new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  }
  const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

  // Light and dark.
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const redraw = [];
  function showTheme() {
    theme.textContent = root.dataset.theme === "dark" ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Switch to the ${theme.textContent.toLowerCase()} theme`);
  }
  function setTheme(name) {
    root.dataset.theme = name;
    showTheme();
    for (const draw of redraw) draw();
  }
  theme.hidden = false;
  showTheme();
  theme.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => setTheme(e.matches ? "dark" : "light"));

  // Which section is being read.
  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const read = new Set();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) read[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    const first = [...links.keys()].find((id) => read.has(id));
    if (first === undefined) return;
    for (const link of links.values()) link.removeAttribute("aria-current");
    links.get(first).setAttribute("aria-current", "true");
  }, { rootMargin: "0px 0px -75% 0px" });
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);

  // Copying.
  async function copied(text, what) {
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      const area = element("textarea", { "aria-hidden": "true", style: "position:fixed;top:0;opacity:0" });
      const focused = document.activeElement;
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
      focused?.focus();
    }
    say(done ? `${what} copied` : "The browser does not allow copying here");
    return done;
  }
  function copyButton(label, what, text) {
    const button = element("button", { type: "button", text: label, "aria-label": `Copy ${what}` });
    button.addEventListener("click", async () => {
      const done = await copied(text(), what);
      button.textContent = done ? "Copied" : "Not copied";
      setTimeout(() => { button.textContent = label; }, 1400);
    });
    return button;
  }
  for (const listing of document.querySelectorAll(".listing")) {
    const title = listing.querySelector(".head span").textContent;
    listing.querySelector(".head").append(copyButton("Copy", title, () => listing.querySelector("pre").textContent));
  }

  // Tables sort, filter and copy what is shown.
  const escapes = { "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "%": "\\%", "&": "\\&", "#": "\\#", "_": "\\_", $: "\\$", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
  const latex = (text) => text.replace(/[\\{}%&#_$~^]/g, (c) => escapes[c])
    .replaceAll("±", "$\\pm$").replaceAll("−", "$-$").replaceAll("–", "--").replaceAll("\n", " ");
  // As fsframework.values.inert_cell: no spreadsheet runs a text.
  const inert = (text) => (text.trim() && !isNaN(text) ? text
    : text.replace(/^(?=[\t\r\n])|(?:^|(?<=[;\t]))(?=[\s'"\u200b-\u200f\ufeff]*[=+\-@＝＋－＠])/g, "'"));
  const forms = {
    CSV: (head, rows) => [head, ...rows].map((row) => row.map(inert).map((cell) => (/[",\n\r;]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(",")).join("\n"),
    Markdown: (head, rows, right) => {
      const line = (row) => `| ${row.map((cell) => cell.replaceAll("\\", "\\\\").replaceAll("|", "\\|").replaceAll("<", "&lt;").replaceAll("\n", " ")).join(" | ")} |`;
      return [line(head), `|${right.map((r) => (r ? "---:" : "---")).join("|")}|`, ...rows.map(line)].join("\n");
    },
    LaTeX: (head, rows, right) => [
      `\\begin{tabular}{${right.map((r) => (r ? "r" : "l")).join("")}}`, "\\toprule",
      `${head.map(latex).join(" & ")} \\\\`, "\\midrule",
      ...rows.map((row) => `${row.join(" & ")} \\\\`), "\\bottomrule", "\\end{tabular}",
    ].join("\n"),
  };
  // The best value of a column is bold where the form has that.
  const emphasis = { CSV: ["", ""], Markdown: ["**", "**"], LaTeX: ["\\textbf{", "}"] };
  const written = Object.fromEntries(Object.entries(emphasis).map(([form, [before, after]]) => [form, (cell) => {
    const text = form === "LaTeX" ? latex(cellText(cell)) : cellText(cell);
    return cell.dataset.mark === "best" ? before + text + after : text;
  }]));
  // What contains every word typed is shown.
  function filter(id, name, unit, items, textOf) {
    const input = element("input", { type: "search", id, autocomplete: "off", spellcheck: "false" });
    const count = element("span", { class: "count" });
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const item of items) {
        const text = textOf(item).toLowerCase();
        item.hidden = !words.every((word) => text.includes(word));
      }
      const shown = `${items.filter((item) => !item.hidden).length} of ${items.length} ${unit}`;
      count.textContent = words.length ? shown : "";
      say(`${name}: ${shown}`);
    });
    return [element("label", { for: id, text: `Filter ${unit}` }), input, count];
  }
  const cellText = (cell) => cell.dataset.text ?? cell.textContent.trim();
  function tableTools(box) {
    const table = box.querySelector("table");
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const name = table.dataset.name;
    const right = heads.map((th) => th.classList.contains("num"));
    heads.forEach((th, column) => {
      const label = th.textContent;
      const button = element("button", { type: "button", text: label });
      th.replaceChildren(button);
      th.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        // Numbers first descend, names ascend.
        const first = right[column] ? "descending" : "ascending";
        const now = th.getAttribute("aria-sort");
        const next = now === "none" ? first : now === "ascending" ? "descending" : "ascending";
        for (const other of heads) other.setAttribute("aria-sort", "none");
        th.setAttribute("aria-sort", next);
        sortRows(rows, column, next === "descending");
        body.append(...rows);
        say(`${name}: sorted by ${label}, ${next}`);
      });
    });
    const shown = () => rows.filter((row) => !row.hidden);
    const content = (form) => [heads.map((th) => th.textContent), shown().map((row) => [...row.cells].map((cell) => written[form](cell)))];
    const tools = element("div", { class: "tools" });
    if (rows.length > 1) tools.append(...filter(`filter-${table.id}`, name, "rows", rows, (row) => row.textContent));
    const copying = element("span", { class: "copying", role: "group", "aria-label": `Copy ${name}` }, element("span", { "aria-hidden": "true", text: "Copy as" }));
    for (const [form, write] of Object.entries(forms)) {
      copying.append(copyButton(form, `${name} as ${form}`, () => write(...content(form), right)));
    }
    tools.append(element("span", { class: "scrolls", text: "More columns to the right →" }), element("span", { class: "gap" }), copying);
    box.prepend(tools);
    const scroll = box.querySelector(".scroll");
    const measured = () => box.classList.toggle("clipped", scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft > 2);
    new ResizeObserver(measured).observe(scroll);
    scroll.addEventListener("scroll", measured, { passive: true });
  }
  function sortRows(rows, column, descending) {
    const key = (row) => {
      const value = row.cells[column].dataset.value;
      return value === undefined || value === "" ? null : Number(value);
    };
    const numeric = rows.some((row) => key(row) !== null);
    const keys = new Map(rows.map((row) => [row, numeric ? key(row) : cellText(row.cells[column])]));
    const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
    rows.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return (x === null) - (y === null); // missing values stay last
      const order = numeric ? x - y : collator.compare(x, y);
      return descending ? -order : order;
    });
  }
  for (const box of document.querySelectorAll(".table")) tableTools(box);
  // Several sets of tasks have a table each, whose name has the data and the shape of the tasks.
  for (const section of document.querySelectorAll("main > section")) {
    const boxes = [...section.children].filter((child) => child.matches(".table, details"));
    if (boxes.filter((box) => box.matches(".table")).length < 2) continue;
    const heading = section.querySelector("h2");
    const nameOf = (box) => box.querySelector("table").dataset.name;
    heading.after(element("div", { class: "tools" }, ...filter(`filter-${section.id}`, heading.textContent, "tables", boxes, nameOf)));
  }

  // Images: each once, read from the file when it is shown.
  const pictures = report.pictures;
  function source(data, image) {
    const place = pictures.places[data]?.[image];
    if (place === undefined) return null;
    const text = document.getElementById("pictures").textContent;
    const [start, length] = pictures.ranges[place];
    return `data:${pictures.type};base64,${text.slice(start, start + length)}`;
  }
  function picture(data, image, { alt, wrong = false, below = [], words = null } = {}) {
    const url = source(data, image);
    const key = report.data[data].keys?.[image] ?? `image ${image}`;
    const item = element("li", { class: wrong ? "pic wrong" : "pic" });
    if (url) item.append(element("img", { src: url, alt: `${alt}: ${key}`, title: key, width: 64, height: 64, decoding: "async" }));
    else item.append(element("span", { class: "key", dir: "auto", title: key, role: "img", "aria-label": `${alt}: ${key} (image not in this file)`, text: key }));
    item.append(...below);
    if (words) item.append(words);
    return item;
  }
  for (const strip of document.querySelectorAll("[data-strip]")) {
    const { data, images, alt } = JSON.parse(strip.dataset.strip);
    strip.replaceChildren(...images.map((image) => picture(data, image, { alt })));
  }

  // Figures.
  function colours() {
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue(name).trim();
    return { ink: of("--ink"), soft: of("--soft"), line: of("--line"), raised: of("--raised") };
  }
  function themed(spec) {
    const { ink, soft, line } = colours();
    const made = structuredClone(spec);
    const own = made.config ?? {};
    made.background = "transparent";
    made.config = {
      ...own, background: "transparent",
      axis: { ...own.axis, labelColor: ink, titleColor: ink, domainColor: soft, tickColor: soft, gridColor: line },
      header: { ...own.header, labelColor: ink, titleColor: ink },
      legend: { ...own.legend, labelColor: ink, titleColor: ink },
      title: { ...own.title, color: ink, subtitleColor: soft },
    };
    return made;
  }
  // Colours made for paper that would vanish on a dark ground.
  const onDark = {
    "#222222": "#eceef0", "#6b6b6b": "#aeb4bb", "#e3e3e3": "#343a41", "#0b4f8a": "#4a94d6", "#7fb8e6": "#b4d9f5", "#6b4a12": "#c99d55",
    "#b03a6f": "#ef86b4", "#4d4d4d": "#c3c8cd", "#2a9d78": "#45c39a",
  };
  function inked(node) {
    if (Array.isArray(node)) return node.map(inked);
    if (node && typeof node === "object") return Object.fromEntries(Object.entries(node).map(([k, v]) => [k, k === "values" || k === "datasets" ? v : inked(v)]));
    return typeof node === "string" ? (onDark[node.toLowerCase()] ?? node) : node;
  }
  // Every value names its series in the field s: s0, s1, ...
  function without(node, off) {
    if (Array.isArray(node)) return node.map((one) => without(one, off));
    if (!node || typeof node !== "object") return node;
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [
      key, key === "values" && Array.isArray(value) ? value.filter((one) => !off.has(one?.s)) : without(value, off),
    ]));
  }
  const MOST_CHIPS = 30;
  let drawing = null;
  // The script that draws is a third of its size when it is compressed.
  async function library() {
    const script = element("script");
    script.textContent = await new Response(inflated(document.getElementById("library").textContent)).text();
    document.head.append(script);
    return window.vegaEmbed;
  }
  function figure(box) {
    const { narrow, wide, series } = report.figures[Number(box.dataset.figure)];
    const canvas = box.querySelector(".canvas");
    const off = new Set();
    const isNarrow = () => canvas.clientWidth < 520;
    let view = null;
    async function draw() {
      let shown = themed(isNarrow() ? narrow : wide);
      if (root.dataset.theme === "dark") shown = inked(shown);
      if (off.size) shown = without(shown, off);
      view?.finalize();
      drawing ??= library();
      const embed = await drawing;
      const made = await embed(canvas, shown, {
        actions: false, renderer: "svg", tooltip: { disableDefaultStyle: true }, ast: false,
      });
      view = made.view;
      const svg = canvas.querySelector("svg");
      if (svg) {
        svg.removeAttribute("width");
        svg.removeAttribute("height");
      }
      svg?.setAttribute("aria-hidden", "true");
      svg?.setAttribute("focusable", "false");
      box.dataset.drawn = "true";
    }
    let started = null;
    redraw.push(() => started && draw());
    let was = isNarrow();
    new ResizeObserver(() => {
      if (isNarrow() === was) return;
      was = isNarrow();
      if (started) draw();
    }).observe(canvas);
    if (series.length > 1 && series.length <= MOST_CHIPS) {
      const chips = element("div", { class: "chips", role: "group", "aria-label": "Shown in the figure" });
      series.forEach((name, place) => {
        const mine = `s${place}`;
        const chip = element("button", { type: "button", "aria-pressed": "true", text: name, dir: "auto" });
        chip.addEventListener("click", () => {
          const now = chip.getAttribute("aria-pressed") === "true";
          if (now && off.size === series.length - 1) return say("One has to be shown");
          if (now) off.add(mine); else off.delete(mine);
          chip.setAttribute("aria-pressed", String(!now));
          draw();
        });
        chips.append(chip);
      });
      canvas.before(chips);
    }
    return () => {
      started ??= draw().catch((error) => {
        canvas.textContent = `This figure cannot be drawn: ${error.message}`;
        box.dataset.drawn = "false";
      });
      return started;
    };
  }
  // What is in view is drawn at once, the rest when it comes near or the browser has nothing to do.
  const boxes = [...document.querySelectorAll("[data-figure]")];
  const starts = new Map(boxes.map((box) => [box, figure(box)]));
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) starts.get(entry.target)();
  }, { rootMargin: "400px" });
  for (const box of boxes) near.observe(box);
  const inView = (box) => box.getBoundingClientRect().top < window.innerHeight;
  const idle = () => new Promise((done) => {
    if (window.requestIdleCallback) window.requestIdleCallback(done, { timeout: 500 });
    else window.setTimeout(done, 30);
  });
  async function drawTheRest() {
    for (const start of starts.values()) {
      await idle();
      await start();
    }
    root.dataset.complete = "true";
  }
  window.addEventListener("beforeprint", () => starts.forEach((start) => start()));

  // Tasks. Numbers are stored as compressed arrays and unpacked when a run is first shown.
  const arrays = new Map();
  const types = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array, i4: Int32Array };
  function unpacked(number) {
    if (!arrays.has(number)) arrays.set(number, unpack(report.arrays[number]));
    return arrays.get(number);
  }
  async function unpack({ type, data }) {
    return new types[type](await new Response(inflated(data)).arrayBuffer());
  }
  async function tasksOf(run) {
    const arms = [];
    for (const { arm, set, predictions } of run.arms) {
      const tasks = report.tasks[set];
      const [classes, support, query, attribute, relaxed, answers] = await Promise.all(
        [tasks.classes, tasks.support, tasks.query, tasks.attribute, tasks.relaxed, predictions].map(unpacked));
      const { way, queries, count } = tasks;
      const accuracy = new Float64Array(count), worst = new Float64Array(count);
      for (let t = 0; t < count; t++) {
        let sum = 0, least = 1;
        for (let w = 0; w < way; w++) {
          let right = 0;
          for (let q = 0; q < queries; q++) right += answers[(t * way + w) * queries + q] === w;
          sum += right / queries;
          least = Math.min(least, right / queries);
        }
        accuracy[t] = sum / way;
        worst[t] = least;
      }
      arms.push({ arm, tasks, classes, support, query, attribute, relaxed, answers, accuracy, worst });
    }
    const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
    const control = arms.find((one) => one.arm === run.control) ?? null;
    const level = control ? mean(control.accuracy) : null;
    const found = [];
    for (const one of arms) {
      for (let t = 0; t < one.tasks.count; t++) {
        const against = control === null ? null : run.paired && one !== control ? control.accuracy[t] : level;
        found.push({ one, t, accuracy: one.accuracy[t], worst: one.worst[t], below: against === null ? null : against - one.accuracy[t] });
      }
    }
    return { found, level };
  }
  const orders = {
    below: ["Furthest below first", (a, b) => b.below - a.below],
    accuracy: ["Lowest accuracy first", (a, b) => a.accuracy - b.accuracy],
    worst: ["Worst class first", (a, b) => a.worst - b.worst],
    best: ["Highest accuracy first", (a, b) => b.accuracy - a.accuracy],
    number: ["Task number", (a, b) => a.t - b.t],
  };
  const PAGE = 10;
  let browsers = 0;
  function browser(box) {
    const number = ++browsers;
    const runs = JSON.parse(box.dataset.browser).map((i) => report.runs[i]);
    const id = (name) => `${name}-${number}`;
    const select = (name, label, options) => {
      const made = element("select", { id: id(name) });
      for (const [value, text] of options) made.append(element("option", { value, text }));
      return [element("label", { for: id(name), text: label }), made];
    };
    const [runLabel, run] = select("run", "Run", runs.map((one, i) => [i, one.label]));
    const [armLabel, arm] = select("arm", "Arm", []);
    const [orderLabel, order] = select("order", "Order", Object.entries(orders).map(([k, [text]]) => [k, text]));
    const find = element("input", { type: "search", id: id("find"), autocomplete: "off", spellcheck: "false" });
    const findLabel = element("label", { for: id("find"), text: "Class or word" });
    const relaxed = element("button", { type: "button", "aria-pressed": "false", text: "Relaxed only" });
    const words = element("button", { type: "button", "aria-pressed": "false", text: "Words of images" });
    const tools = element("div", { class: "tools" }, runLabel, run, armLabel, arm, orderLabel, order, findLabel, find, relaxed, words);
    const rows = element("tbody");
    const against = element("th", { scope: "col", class: "num" });
    const table = element("table", {},
      element("caption", { text: "Tasks; choose one to see it" }),
      element("thead", {}, element("tr", {},
        element("th", { scope: "col", text: "Task" }), element("th", { scope: "col", text: "Arm" }),
        element("th", { scope: "col", class: "num", text: "Accuracy" }), against,
        element("th", { scope: "col", class: "num", text: "Worst class" }), element("th", { scope: "col", text: "Classes and their words" }))), rows);
    const back = element("button", { type: "button", text: "Previous" });
    const on = element("button", { type: "button", text: "Next" });
    const where = element("span");
    const list = element("div", { class: "list" },
      element("div", { class: "scroll", role: "region", "aria-label": "List of tasks", tabindex: 0 }, table),
      element("div", { class: "pages" }, back, on, where));
    const shown = element("article", { class: "task", "aria-live": "off", tabindex: -1, "aria-label": "The chosen task" });
    box.replaceChildren(tools, element("div", { class: "browser" }, list, shown));
    let all = { found: [], level: null }, chosen = [], page = 0, current = null, asked = 0;

    function names(one, t) {
      const { way } = one.tasks, data = report.data[one.tasks.data];
      return Array.from({ length: way }, (_, w) => {
        const tied = one.attribute[t * way + w];
        return { name: data.classes?.[one.classes[t * way + w]] ?? `class ${one.classes[t * way + w]}`, word: tied < 0 ? null : one.tasks.words[tied], relaxed: one.relaxed[t * way + w] === 1 };
      });
    }
    function filtered() {
      const text = find.value.trim().toLowerCase();
      const only = relaxed.getAttribute("aria-pressed") === "true";
      chosen = all.found.filter((task) => arm.value === "" || task.one.arm === arm.value);
      if (only) chosen = chosen.filter((task) => names(task.one, task.t).some((c) => c.relaxed));
      if (text) chosen = chosen.filter((task) => names(task.one, task.t).some((c) => `${c.name} ${c.word ?? ""}`.toLowerCase().includes(text)));
      chosen.sort((a, b) => orders[order.value][1](a, b) || a.t - b.t);
      page = 0;
      current = chosen[0] ?? null;
      fill();
      show();
    }
    function fill() {
      const part = chosen.slice(page * PAGE, (page + 1) * PAGE);
      rows.replaceChildren(...part.map((task) => {
        const pick = element("button", { type: "button", class: "pick", text: String(task.t), "aria-label": `Show task ${task.t} of the ${task.one.arm} arm` });
        pick.setAttribute("aria-pressed", String(task === current));
        const row = element("tr", { class: task === current ? "chosen" : null },
          element("th", { scope: "row" }, pick), element("td", { text: task.one.arm, dir: "auto" }),
          element("td", { class: "num", text: percent(task.accuracy) }),
          element("td", { class: "num", text: task.below === null ? "–" : (100 * task.below).toFixed(1) }),
          element("td", { class: "num", text: percent(task.worst) }),
          element("td", { dir: "auto", text: names(task.one, task.t).map((c) => (c.word === null ? c.name : `${c.name}: ${c.word}`)).join(", ") }));
        pick.addEventListener("click", () => choose(task));
        return row;
      }));
      if (!part.length) rows.append(element("tr", {}, element("td", { colspan: 6, class: "none", text: "No task matches." })));
      const pages = Math.max(1, Math.ceil(chosen.length / PAGE));
      back.disabled = page === 0;
      on.disabled = page >= pages - 1;
      where.textContent = `${chosen.length.toLocaleString("en")} tasks, page ${page + 1} of ${pages.toLocaleString("en")}`;
    }
    function choose(task) {
      current = task;
      [...rows.rows].forEach((row, i) => {
        const same = chosen[page * PAGE + i] === task;
        row.classList.toggle("chosen", same);
        row.querySelector(".pick")?.setAttribute("aria-pressed", String(same));
      });
      show();
      say(shown.querySelector("h3")?.textContent ?? "");
    }
    rows.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !event.target.classList.contains("pick")) return;
      event.preventDefault();
      const at = chosen.indexOf(current) + step;
      if (!chosen[at]) return;
      if (Math.floor(at / PAGE) !== page) { page = Math.floor(at / PAGE); current = chosen[at]; fill(); show(); }
      else choose(chosen[at]);
      rows.querySelectorAll(".pick")[at - page * PAGE].focus();
    });
    function wordsBelow(data, image, tied) {
      if (words.getAttribute("aria-pressed") !== "true") return null;
      const known = report.data[data];
      const own = known.imageWords?.(image);
      if (!own) return element("span", { class: "words", text: "words not known" });
      const line = element("span", { class: "words", dir: "auto" });
      own.forEach((word, i) => {
        if (i) line.append(", ");
        line.append(word === tied ? element("mark", { text: word }) : word);
      });
      return line;
    }
    function show() {
      if (current === null) return shown.replaceChildren(element("p", { text: "No task is chosen." }));
      const { one, t } = current, { way, shot, queries, data } = one.tasks;
      const classes = names(one, t);
      const wrong = classes.map((_, w) => Array.from({ length: queries }, (_, q) => one.answers[(t * way + w) * queries + q]).filter((p) => p !== w).length);
      const title = element("h3", { text: `Task ${t} of the ${one.arm} arm: ${percent(current.accuracy)} right` });
      const run_ = runs[Number(run.value)];
      const compared = current.below === null ? "" : `${Math.abs(100 * current.below).toFixed(1)} points ${current.below >= 0 ? "below" : "above"} ${run_.paired && one.arm !== run_.control ? "its partner" : `the mean of the ${run_.control} arm`}; `;
      const told = element("p", { class: "under", text: `${run_.label}: ${compared}${wrong.reduce((a, b) => a + b, 0)} of ${way * queries} queries wrong; worst class ${percent(current.worst)}.` });
      const legend = element("div", { class: "legend" },
        element("span", {}, element("span", { class: "swatch bad", "aria-hidden": "true" }), "wrong prediction, with the predicted class below"),
        classes.some((c) => c.word !== null) ? element("span", {}, element("span", { class: "chip", text: "word" }), " tied to the class in its support") : null);
      const parts = classes.map((c, w) => {
        const strip = (from, size, make) => element("ul", { class: "strip" }, ...Array.from({ length: size }, (_, i) => make(from[(t * way + w) * size + i], i)));
        const head = element("header", {}, element("h4", { dir: "auto", text: c.name }),
          c.word === null ? null : element("p", { class: "facts" }, element("span", { class: "chip", dir: "auto", text: c.word })),
          element("p", { class: "facts", text: `${queries - wrong[w]} of ${queries} right${c.relaxed ? "; relaxed: too few queries allowed the sampler its usual choice" : ""}` }));
        const support = element("div", { class: "part" }, element("p", { text: "Support" }),
          strip(one.support, shot, (image) => picture(data, image, { alt: `Support of ${c.name}`, words: wordsBelow(data, image, c.word) })));
        const query = element("div", { class: "part" }, element("p", { text: "Queries" }),
          strip(one.query, queries, (image, q) => {
            const predicted = one.answers[(t * way + w) * queries + q];
            const bad = predicted !== w;
            const below = bad ? [element("span", { dir: "auto", text: classes[predicted].name })] : [];
            return picture(data, image, { wrong: bad, below, alt: bad ? `Query of ${c.name}, predicted ${classes[predicted].name}` : `Query of ${c.name}, predicted rightly`, words: wordsBelow(data, image, c.word) });
          }));
        return element("section", { class: "way", "aria-label": `Class ${c.name}` }, head, support, query);
      });
      shown.replaceChildren(title, told, legend, ...parts);
      box.dataset.ready = "true";
    }
    async function load() {
      const mine = ++asked, one = runs[Number(run.value)];
      const found = await tasksOf(one);
      if (mine !== asked) return;
      all = found;
      const before = arm.value;
      arm.replaceChildren(element("option", { value: "", text: "all" }), ...one.arms.map((a) => element("option", { value: a.arm, text: a.arm })));
      arm.value = one.arms.some((a) => a.arm === before) ? before : one.tested ?? "";
      against.textContent = one.control === null ? "Below" : one.paired ? "Below partner" : `Below ${one.control} mean`;
      if (all.level === null && order.value === "below") order.value = "accuracy";
      filtered();
    }
    run.addEventListener("change", load);
    for (const part of [arm, order]) part.addEventListener("change", filtered);
    let waiting = 0;
    find.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => { filtered(); say(`${chosen.length} tasks`); }, 150); });
    for (const part of [relaxed, words]) {
      part.addEventListener("click", () => {
        part.setAttribute("aria-pressed", String(part.getAttribute("aria-pressed") !== "true"));
        if (part === words) show(); else filtered();
      });
    }
    back.addEventListener("click", () => { page -= 1; fill(); });
    on.addEventListener("click", () => { page += 1; fill(); });
    return load();
  }
  async function wordBits() {
    for (const data of report.data) {
      if (data.bits === null || data.bits === undefined) continue;
      const bits = await unpacked(data.bits);
      const stride = Math.ceil(data.words.length / 8);
      data.imageWords = (image) => data.words.filter((_, w) => (bits[image * stride + (w >> 3)] >> (w & 7)) & 1);
    }
  }
  async function tasks() {
    if (!document.querySelector("[data-browser]")) return;
    try {
      await wordBits();
      await Promise.all([...document.querySelectorAll("[data-browser]")].map(browser));
    } catch (error) {
      for (const box of document.querySelectorAll("[data-browser]")) {
        box.replaceChildren(element("p", { class: "notice", text: `The tasks cannot be shown: ${error.message}` }));
      }
    }
  }
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
  const first = boxes.filter(inView).map((box) => starts.get(box)());
  Promise.all([...first, tasks()]).then(() => {
    root.dataset.ready = "true";
    drawTheRest();
  });
})();

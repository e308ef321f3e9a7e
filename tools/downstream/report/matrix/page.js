"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const details = document.getElementById("details");
  let selected = null;

  const element = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  const visibleRows = (table) => [...table.tBodies[0].rows].filter((row) => !row.hidden);

  const unfold = (row, open) => {
    const button = row.querySelector(".unfold");
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "▾" : "▸";
    const wanted = row.dataset.patch;
    for (const other of row.parentElement.rows) {
      if (other.classList.contains("hunk") && other.dataset.patch === wanted) other.hidden = !open;
    }
  };

  const isOpen = (row) => row.querySelector(".unfold").getAttribute("aria-expanded") === "true";

  const patchRow = (row) =>
    row.classList.contains("patch")
      ? row
      : [...row.parentElement.rows].find((one) => one.classList.contains("patch") && one.dataset.patch === row.dataset.patch);

  const diff = (text) => {
    const pre = element("pre");
    for (const line of text.split("\n")) {
      const kind = line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : "";
      pre.append(element("span", line + "\n", kind));
    }
    return pre;
  };

  const side = (title, content) => {
    const box = element("div");
    box.append(element("h4", title), content);
    return box;
  };

  const life = (one) => {
    if (!one.first) return "It applies to none of these releases.";
    let text = `It applies from ${one.first} to ${one.last}`;
    if (one.ended) text += `; it ${one.fate} since ${one.ended}`;
    if (one.commit) {
      const name = one.commit.pull ? `#${one.commit.pull}` : one.commit.id.slice(0, 9);
      const title = one.commit.title.replace(` (#${one.commit.pull})`, "");
      text += ` (${name}: ${title}, ${one.commit.date.slice(0, 10)})`;
    }
    for (const move of one.moves) text += `; from ${move.version} on code like it is in ${move.path}`;
    return text + ".";
  };

  const numbered = (lines) => {
    const width = String(lines[lines.length - 1].line).length;
    return element("pre", lines.map((one) => `${String(one.line).padStart(width)} | ${one.text}`).join("\n"));
  };

  const showHunk = (box, matrix, row, release, number) => {
    const cell = row.cells[number];
    const verdict = cell === null ? null : matrix.verdicts[cell];
    const where = row.number ? `${row.file}, hunk ${row.number}` : row.file;
    box.append(element("h3", `${where} on ${matrix.upstream} ${release.version}: ${verdict ? verdict.status : "skipped"}`));
    if (!verdict) return void box.append(element("p", release.skipped));
    const facts = [];
    if (verdict.line) facts.push(`It lands at line ${verdict.line}` + (verdict.offset ? `, ${verdict.offset} lines from where it was.` : ", where it was."));
    if (verdict.reason) facts.push(verdict.reason + ".");
    if (verdict.review) facts.push(`Review: ${verdict.review} changed around it.`);
    if (verdict.candidates.length) facts.push(`Look at lines ${verdict.candidates.join(", ")}.`);
    if (verdict.elsewhere.length) facts.push(`Code like it stands at ${verdict.elsewhere.join(", ")}.`);
    for (const fact of [...facts, life(row.lifetime)]) box.append(element("p", fact));
    const sides = element("div", undefined, "sides");
    if (row.text) sides.append(side("the patch", diff(row.text)));
    const lived = row.lifetime;
    if (!["clean", "offset", "merged", "file-moved"].includes(verdict.status) && lived.before.length) {
      sides.append(side(`upstream ${lived.last}, the last to take it`, numbered(lived.before)));
    }
    const after = verdict.found.length ? verdict.found : release.version === lived.ended ? lived.after : [];
    if (after.length) sides.append(side(`upstream ${release.version}`, numbered(after)));
    box.append(sides);
  };

  const showGuard = (box, matrix, guard, release, number) => {
    const at = guard.cells[number];
    const cell = at === null ? null : matrix.guards.cells[at];
    box.append(element("h3", `${guard.file}${cell ? `:${cell.line}` : ""} on ${matrix.upstream} ${release.version}: ${cell ? cell.state : release.skipped ? "skipped" : "no such guard"}`));
    box.append(element("pre", guard.condition));
    if (guard.function) box.append(element("p", `In ${guard.function}.`));
    if (!cell) return;
    box.append(element("p", `${cell.class}${cell.effect ? `, ${cell.effect}` : ""}: ${cell.evidence}.`));
    box.append(element("p", Object.entries(cell.arches).map(([arch, verdict]) => `${arch} ${verdict}`).join(", ") + "."));
    if (cell.covered_by) box.append(element("p", `${cell.state}: ${cell.covered_by}`));
  };

  const openGuards = (cell, matrix) => {
    const row = cell.parentElement;
    const number = Number(cell.dataset.column);
    const release = matrix.releases[number];
    const rows = row.classList.contains("hunk")
      ? [row]
      : [...row.parentElement.rows].filter((one) => one.dataset.guard && one.dataset.patch === row.dataset.patch);
    for (const one of rows) showGuard(details, matrix, matrix.guards.rows[Number(one.dataset.guard)], release, number);
  };

  const openPatch = (cell, matrix) => {
    const row = cell.parentElement;
    const patch = matrix.patches[Number(row.dataset.patch)];
    const number = Number(cell.dataset.column);
    const release = matrix.releases[number];
    const hunks = row.classList.contains("hunk") ? [patch.hunks[Number(row.dataset.hunk)]] : patch.hunks;
    details.append(element("h3", `${patch.patch} — ${matrix.upstream} ${release.version}` + (release.date ? ` (${release.date})` : "")));
    for (const hunk of hunks) showHunk(details, matrix, hunk, release, number);
    details.append(side("the patch's header", element("pre", patch.header)));
  };

  const open = (cell) => {
    const table = cell.closest("table");
    const matrix = data.matrices[Number(table.dataset.matrix)];
    const close = element("button", "close", "close");
    close.type = "button";
    close.addEventListener("click", shut);
    details.replaceChildren(close);
    if (table.dataset.map === "guards") openGuards(cell, matrix);
    else openPatch(cell, matrix);
    details.hidden = false;
    details.scrollTop = 0;
    select(cell);
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  };

  const shut = () => {
    details.hidden = true;
    if (selected) selected.focus();
  };

  const select = (cell) => {
    if (selected) {
      selected.tabIndex = -1;
      selected.removeAttribute("aria-selected");
    }
    selected = cell;
    cell.tabIndex = 0;
    cell.setAttribute("aria-selected", "true");
  };

  const step = (cell, down, right) => {
    const rows = visibleRows(cell.closest("table"));
    const row = rows[rows.indexOf(cell.parentElement) + down];
    const next = row && row.cells[cell.cellIndex + right];
    if (next && next.tagName === "TD") {
      select(next);
      next.focus();
    }
  };

  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  document.addEventListener("click", (event) => {
    const button = event.target.closest(".unfold");
    if (button) return unfold(button.closest("tr"), button.getAttribute("aria-expanded") !== "true");
    const cell = event.target.closest("td[data-column]");
    if (cell) open(cell);
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return shut();
    const cell = event.target.closest("td[data-column]");
    if (!cell) return;
    if (moves[event.key]) step(cell, ...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") open(cell);
    else if (event.key === "+" || event.key === "-") {
      const row = patchRow(cell.parentElement);
      if (event.key === "-" && row !== cell.parentElement) {
        const kept = row.cells[cell.cellIndex];
        select(kept);
        kept.focus();
      }
      if (isOpen(row) !== (event.key === "+")) unfold(row, event.key === "+");
    } else return;
    event.preventDefault();
  });

  for (const [name, opened] of [["unfold", true], ["fold", false]]) {
    document.getElementById(name).addEventListener("click", () => {
      for (const row of document.querySelectorAll("tr.patch")) unfold(row, opened);
    });
  }

  const first = document.querySelector("td[data-column]");
  if (first) first.tabIndex = 0;
  document.documentElement.dataset.ready = "true";
})();

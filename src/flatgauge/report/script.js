"use strict";
(function () {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
  // Surfaces: heights between 0 and 1 over a square, the farthest pieces drawn first.
  const source = document.getElementById("surfaces");
  const surfaces = source ? JSON.parse(source.textContent) : {};
  const role = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  function draw(canvas, view) {
    const { heights, path } = surfaces[canvas.dataset.surface];
    const size = canvas.clientWidth, ratio = devicePixelRatio || 1;
    if (!size) return;
    canvas.width = size * ratio;
    canvas.height = 0.72 * size * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const [sine, cosine] = [Math.sin(view.turn), Math.cos(view.turn)];
    const [steep, level] = [Math.sin(view.tilt), Math.cos(view.tilt)];
    const place = (u, v, z) => {
      const x = u - 0.5, y = v - 0.5;
      const side = x * cosine - y * sine, depth = x * sine + y * cosine;
      return [size * (0.5 + 0.6 * side), size * (0.36 + 0.5 * (depth * steep - (z - 0.5) * 0.7 * level)), depth];
    };
    const rows = heights.length - 1, columns = heights[0].length - 1;
    const pieces = [];
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
      if (corners.some(([a, b]) => heights[a][b] === null)) continue;
      const at = corners.map(([a, b]) => place(a / rows, b / columns, heights[a][b]));
      const height = corners.reduce((sum, [a, b]) => sum + heights[a][b], 0) / 4;
      pieces.push({ at, height, depth: at.reduce((sum, one) => sum + one[2], 0) });
    }
    pieces.sort((one, other) => one.depth - other.depth);
    const [accent, paper, ink, warm] = ["accent", "paper", "ink", "warm"].map(role);
    pen.lineWidth = 0.4;
    for (const { at, height } of pieces) {
      pen.beginPath();
      for (const [x, y] of at) pen.lineTo(x, y);
      pen.closePath();
      pen.fillStyle = `color-mix(in srgb, ${accent} ${Math.round(12 + 80 * height)}%, ${paper})`;
      pen.strokeStyle = ink;
      pen.fill();
      pen.stroke();
    }
    pen.strokeStyle = pen.fillStyle = warm;
    pen.lineWidth = 2;
    pen.beginPath();
    for (const [u, v] of path) {
      const height = heights[Math.round(u * rows)][Math.round(v * columns)];
      const [x, y] = place(u, v, (height ?? 1) + 0.01);
      pen.lineTo(x, y);
    }
    pen.stroke();
  }

  const turned = [];
  for (const canvas of document.querySelectorAll("[data-surface]")) {
    const view = { turn: 0.7, tilt: 0.6 };
    const show = () => draw(canvas, view);
    const turn = (x, y) => {
      view.turn += x;
      view.tilt = Math.min(1.5, Math.max(0, view.tilt + y));
      show();
    };
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) turn(-0.01 * event.movementX, 0.01 * event.movementY);
    });
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (!step) return;
      event.preventDefault();
      turn(...step);
    });
    new ResizeObserver(show).observe(canvas);
    turned.push(show);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => turned.forEach((show) => show()));

  // What is folded is shown where a link points into it, and on paper.
  const unfold = () => {
    const place = location.hash && document.querySelector(location.hash + " > details");
    if (place) place.open = true;
  };
  addEventListener("hashchange", unfold);
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = true;
  });
  unfold();
})();

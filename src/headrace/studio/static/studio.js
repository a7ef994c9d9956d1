// The studio's own script: the player of simulations, dialogs, series and the theme. Everything else
// is HTML from the server.
"use strict";

(() => {
  const $ = (selector, root = document) => root.querySelector(selector);

  // Every request that changes something carries the page's CSRF value.
  document.addEventListener("htmx:config:request", (event) => {
    const csrf = $('meta[name="csrf"]')?.content;
    const { request } = event.detail.ctx;
    if (csrf && request.method !== "GET") request.headers["x-headrace-csrf"] = csrf;
  });

  $("#theme")?.addEventListener("click", () => {
    const root = document.documentElement;
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const next = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    root.dataset.theme = next;
    localStorage.setItem("theme", next);
    document.dispatchEvent(new Event("headrace:theme"));
  });

  // A form with data-confirm asks first.
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset?.confirm;
    if (question && !window.confirm(question)) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  }, true);

  // A slider shows its value beside it.
  document.addEventListener("input", ({ target }) => {
    const shown = target.form && $(`output[data-for="${target.name}"]`, target.form);
    if (shown) shown.textContent = target.value;
  });

  // The fields of a form with data-address are the address of the page.
  document.addEventListener("input", (event) => {
    const form = event.target.closest?.("form[data-address]");
    if (form) history.replaceState(null, "", `?${new URLSearchParams(new FormData(form))}`);
  });

  // The player of a simulation. The form's fields are the address; htmx fetches the frame.
  const controls = $("#controls");
  if (controls) player(controls);

  function player(form) {
    const step = form.elements.step;
    const acts = form.elements.do;
    const play = $('[data-player="play"]', form);
    const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let timer = null;

    const changed = (field) => field.dispatchEvent(new Event("input", { bubbles: true }));
    const go = (to) => {
      const next = Math.max(0, Math.min(Number(step.max), to));
      if (next === Number(step.value)) return false;
      step.value = next;
      changed(step);
      return true;
    };
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "▶";
    };
    const toggle = () => {
      if (timer) return stop();
      if (Number(step.value) >= Number(step.max)) go(0);
      play.textContent = "❚❚";
      timer = setInterval(() => go(Number(step.value) + 1) || stop(), reduced ? 800 : 350);
    };
    const buttons = {
      back: () => { stop(); go(Number(step.value) - 1); },
      forward: () => { stop(); go(Number(step.value) + 1); },
      reset: () => { stop(); go(0); },
      play: toggle,
    };

    form.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.player) buttons[button.dataset.player]();
      if (button.dataset.act !== undefined && acts) {
        const act = `${step.value}:${button.dataset.act}`;
        acts.value = button.dataset.act ? [acts.value, act].filter(Boolean).join(",") : "";
        if (!button.dataset.act || !go(Number(step.value) + 1)) changed(step);
      }
      if (button.id === "link") {
        navigator.clipboard?.writeText(location.href);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy link"; }, 1500);
      }
    });
    form.addEventListener("input", (event) => {
      const shown = $(`output[data-for="${event.target.name}"]`, form);
      if (shown) shown.textContent = event.target.value;
      const address = new URLSearchParams(new FormData(form));
      const saved = $("#export", form);
      if (saved) saved.href = `${saved.pathname}?${address}`;
      history.replaceState(null, "", `?${address}`);
    });
    document.addEventListener("htmx:after:swap", () => {
      const frame = $("#frame");
      if (!frame) return;
      const last = frame.dataset.steps;
      if (last && step.max !== last) {
        step.max = last;
        const text = $('output[data-for="step"]', form);
        text.nextSibling.textContent = ` of ${last}`;
        text.textContent = step.value;
      }
    });
    document.addEventListener("keydown", (event) => {
      const inField = event.target.matches("input, select, textarea, button, a, summary");
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === " " && !inField) { event.preventDefault(); toggle(); }
      if (inField && event.target.type === "range" && event.target !== step) return;
      if (event.target.matches("select, textarea, input[type=number], input[type=text]")) return;
      if (event.key === "ArrowLeft") { event.preventDefault(); buttons.back(); }
      if (event.key === "ArrowRight") { event.preventDefault(); buttons.forward(); }
      if (event.key === "Home") { event.preventDefault(); buttons.reset(); }
    });
  }

  // A live series: <div class="series" data-series='{"labels": [...], "rows": [[t, ...], ...]}'>.
  const plots = new WeakMap();
  // A canvas does not know light-dark(): the browser resolves it for an element.
  const colour = (name) => {
    const probe = document.createElement("i");
    probe.className = `colour${name}`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  function series(element) {
    const given = JSON.parse(element.dataset.series);
    const data = given.rows.length ? given.rows[0].map((_, i) => given.rows.map((row) => row[i])) : given.labels.map(() => []);
    const known = plots.get(element);
    if (known && known.labels === given.labels.join()) {
      // A swap removes what the server does not know of.
      if (!element.contains(known.plot.root)) element.replaceChildren(known.plot.root);
      known.plot.setData(data);
      return;
    }
    known?.plot.destroy();
    element.replaceChildren();
    const names = ["--a", "--d", "--c", "--b", "--e", "--f"];
    const plot = new uPlot({
      width: element.clientWidth || 600,
      height: given.height || 200,
      legend: { live: false },
      cursor: { show: false },
      // A minute at least, so that the first samples are no line from edge to edge.
      scales: { x: { range: (_, low, high) => [Math.min(low, high - 60), high] } },
      series: given.labels.map((label, i) => i === 0 ? {} : {
        label, stroke: colour(names[(i - 1) % names.length]), width: 2, points: { show: data[0].length < 3 },
      }),
      axes: [
        {
          stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, space: 90,
          // In UTC, as all other times of the studio.
          values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toISOString().slice(11, 19)),
        },
        { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, size: 84 },
      ],
    }, data, element);
    plots.set(element, { plot, labels: given.labels.join() });
  }

  const draw = () => document.querySelectorAll("[data-series]").forEach(series);
  document.addEventListener("htmx:after:swap", draw);
  document.addEventListener("headrace:theme", () => {
    document.querySelectorAll("[data-series]").forEach((element) => {
      plots.get(element)?.plot.destroy();
      plots.delete(element);
    });
    draw();
  });
  addEventListener("resize", () => document.querySelectorAll("[data-series]").forEach((element) => {
    plots.get(element)?.plot.setSize({ width: element.clientWidth, height: 200 });
  }));
  draw();

  // On a phone the navigation is wider than the page.
  document.querySelector(".bar nav a[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
})();

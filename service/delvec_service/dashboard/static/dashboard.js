"use strict";

// Plots: each element with data-chart has {names, unit, bars, data}; data has uPlot's format.
const COLOURS = ["#0b7fd0", "#c4572e", "#2e8b57"];

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const HEIGHT = 180;
const HOUR = 3600;
const DAY = 24 * HOUR;

// Tick positions: bytes at powers of two, which units of 1,024 show as whole numbers; counts at whole numbers.
const POWERS = Array.from({ length: 63 }, (_, exponent) => 2 ** exponent);
const WHOLE = Array.from({ length: 16 }, (_, exponent) => [1, 2, 5].map((digit) => digit * 10 ** exponent)).flat();
const SHARES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5];
const SECONDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY];
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR];
const DAYS = [1, 2, 3, 7, 14, 30, 60, 90, 180].map((count) => count * DAY);

function lasting(seconds) {
  for (const [step, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= step) return `${+(seconds / step).toFixed(1)} ${name}`;
  }
  return `${+seconds.toFixed(1)} s`;
}

function written(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "seconds") return lasting(value);
  if (unit === "percent") return `${+(value * 100).toFixed(1)} %`;
  if (unit === "score") return `${+value.toFixed(1)}`;
  if (unit !== "bytes") return value.toLocaleString("en");
  const step = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${+(value / 1024 ** step).toFixed(1)} ${UNITS[step]}`;
}

// Times are in UTC, as everywhere else on the page; uPlot's default is the visitor's time zone.
const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

function times(_plot, splits, _axis, _space, step) {
  if (step >= DAY) return splits.map(day);
  return splits.map((one, i) => {
    const hour = clock(one).slice(0, step < 60 ? 8 : 5);
    return i === 0 || day(one) !== day(splits[i - 1]) ? `${hour}\n${day(one)}` : hour;
  });
}

function steps(unit) {
  if (unit === "bytes") return POWERS;
  if (unit === "percent") return SHARES;
  if (unit === "seconds") return SECONDS;
  return WHOLE;
}

function range(given) {
  if (given.unit === "score") return () => [0, 100];
  return (_plot, low, high) => [Math.min(0, low ?? 0), high > low || high > 0 ? high * 1.05 : 1];
}

function draw(element) {
  const given = JSON.parse(element.dataset.chart);
  const colour = getComputedStyle(document.body).color;
  const axis = { stroke: colour, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884", width: 1 } };
  const width = () => Math.max(240, element.clientWidth);
  const bars = given.bars ? { paths: uPlot.paths.bars({ size: [0.8, 48], align: 1 }), points: { show: false } } : {};
  const options = {
    width: width(),
    height: HEIGHT,
    scales: {
      x: given.bars ? { range: () => [given.data[0][0], given.data[0].at(-1) + given.bars] } : {},
      y: { range: range(given) },
    },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    series: [
      { label: "Time (UTC)", value: (_plot, value) => (value === null ? "–" : `${day(value)} ${clock(value)}`) },
      ...given.names.map((label, i) => ({
        label,
        stroke: COLOURS[i],
        fill: given.bars ? COLOURS[i] : undefined,
        width: 2,
        spanGaps: true,
        value: (_plot, value) => written(value, given.unit),
        ...bars,
      })),
    ],
    axes: [
      { ...axis, values: times, space: 80, incrs: [...TIMES, ...DAYS] },
      {
        ...axis,
        size: 72,
        incrs: steps(given.unit),
        values: (_plot, splits) => splits.map((one) => written(one, given.unit)),
      },
    ],
  };
  const plot = new uPlot(options, given.data, element);
  new ResizeObserver(() => plot.setSize({ width: width(), height: HEIGHT })).observe(element);
}

const drawAll = (within) => within.querySelectorAll("[data-chart]:empty").forEach(draw);
drawAll(document);
document.body.addEventListener("htmx:afterSettle", (event) => drawAll(event.detail.elt.parentElement ?? document));

// "/" moves to the search field, as on many pages.
document.addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  if (event.key === "/" && search && !["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) {
    event.preventDefault();
    search.focus();
  }
});

// Who types a pattern or a table means it, not the choice above it.
document.addEventListener("input", ({ target }) => {
  const choice = target.closest("fieldset label")?.querySelector("input[type=radio]");
  if (choice && choice !== target && target.value) choice.checked = true;
});

// While a task runs: show how long it has been running, and scroll to its result.
let began = null;

function told(seconds) {
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

function count() {
  if (began === null) return;
  const seconds = Math.round((Date.now() - began) / 1000);
  document.querySelectorAll("[data-elapsed]").forEach((element) => {
    element.textContent = `Running, ${told(seconds)}. It continues if you leave this page.`;
  });
  setTimeout(count, 1000);
}

function isTask(event) {
  return event.detail.elt instanceof HTMLFormElement && "task" in event.detail.elt.dataset;
}

document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (!isTask(event)) return;
  began = Date.now();
  count();
  document.getElementById("busy")?.scrollIntoView({ block: "center" });
  setTimeout(() => htmx.trigger(document.body, "task-changed"), 500);
});

document.body.addEventListener("htmx:afterRequest", (event) => {
  if (!isTask(event)) return;
  began = null;
  htmx.trigger(document.body, "task-changed");
  document.getElementById("result")?.focus();
});

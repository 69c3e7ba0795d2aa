"use strict";

// Plots: each element with data-chart has {names, data}, as uPlot takes it.
const COLOURS = ["#0b7fd0", "#c4572e", "#2e8b57"];

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

function written(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "percent") return `${+(value * 100).toFixed(1)} %`;
  if (unit !== "bytes") return value.toLocaleString("en");
  const step = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${+(value / 1024 ** step).toFixed(1)} ${UNITS[step]}`;
}

// Times are UTC, as everywhere else on the page; uPlot's own would be the visitor's.
const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

function times(_plot, splits, _axis, _space, step) {
  if (step >= 86400) return splits.map(day);
  return splits.map((one, i) => {
    const hour = clock(one).slice(0, step < 60 ? 8 : 5);
    return i === 0 || day(one) !== day(splits[i - 1]) ? `${hour}\n${day(one)}` : hour;
  });
}

function draw(element) {
  const given = JSON.parse(element.dataset.chart);
  const colour = getComputedStyle(document.body).color;
  const axis = { stroke: colour, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884", width: 1 } };
  const options = {
    width: Math.max(280, element.clientWidth),
    height: 180,
    scales: { y: { range: (_plot, low, high) => [Math.min(0, low), high > low ? high : low + 1] } },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    series: [
      { label: "Time (UTC)", value: (_plot, value) => (value === null ? "–" : `${day(value)} ${clock(value)}`) },
      ...given.names.map((label, i) => ({
        label,
        stroke: COLOURS[i],
        width: 2,
        spanGaps: true,
        value: (_plot, value) => written(value, given.unit),
      })),
    ],
    axes: [
      { ...axis, values: times, space: 80 },
      { ...axis, size: 80, values: (_plot, splits) => splits.map((one) => written(one, given.unit)) },
    ],
  };
  const plot = new uPlot(options, given.data, element);
  new ResizeObserver(() => plot.setSize({ width: Math.max(280, element.clientWidth), height: 180 })).observe(element);
}

document.querySelectorAll("[data-chart]").forEach(draw);

// "/" goes to the search field, as in many pages.
document.addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  if (event.key === "/" && search && !["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) {
    event.preventDefault();
    search.focus();
  }
});

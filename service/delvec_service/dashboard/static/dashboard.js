"use strict";

// Plots: each element with data-chart has {names, data}, as uPlot takes it.
const COLOURS = ["#0b7fd0", "#c4572e", "#2e8b57"];

function draw(element) {
  const given = JSON.parse(element.dataset.chart);
  const colour = getComputedStyle(document.body).color;
  const axis = { stroke: colour, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884", width: 1 } };
  const options = {
    width: Math.max(280, element.clientWidth),
    height: 180,
    scales: { y: { range: (_plot, low, high) => [Math.min(0, low), high > low ? high : low + 1] } },
    series: [{}, ...given.names.map((label, i) => ({ label, stroke: COLOURS[i], width: 2, spanGaps: true }))],
    axes: [axis, { ...axis, size: 80 }],
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

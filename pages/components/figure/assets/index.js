// A Plotly figure that is updated in place: a curve that grows does not lose its zoom, its hover, or a frame.
//
// Colours come as "@name" and are filled in from the palette of the theme that is on, the font as "@font"; so a change of
// theme needs no rerun. Figures of one group share their x axis: a zoom in one is a zoom in all.

import { placeLabels } from "./labels.js"

// Streamlit serves this file below the app's base path, whatever that is.
const BASE = import.meta.url.slice(0, import.meta.url.indexOf("/_stcore/") + 1)
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset" }

const charts = new WeakMap()
const groups = new Map()
let library

function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script")
    script.src = new URL("api/plotly.js", BASE)
    script.onload = () => resolve(window.Plotly)
    script.onerror = () => reject(new Error("plotly.js could not be loaded"))
    document.head.append(script)
  })
  return library
}

// It is the largest file by far: asked for before the first figure is.
plotly()

class Chart {
  constructor(parent) {
    this.parent = parent
    this.element = document.createElement("div")
    this.element.setAttribute("role", "figure")
    parent.append(this.element)
  }

  async update({ figure, palette, alt, group }) {
    const shown = JSON.stringify([figure, isDark(this.parent)])
    if (shown === this.shown) return
    this.shown = shown
    this.element.style.height = `${figure.layout.height}px`
    this.element.setAttribute("aria-label", alt)
    const Plotly = await plotly()
    // A later update may have overtaken this one while the library was loading.
    if (this.gone || shown !== this.shown) return
    const font = getComputedStyle(this.parent).fontFamily
    const { data, layout, labels, path } = coloured(figure, { ...palette[isDark(this.parent) ? 1 : 0], font })
    this.labels = labels
    this.path = path ?? []
    await Plotly.react(this.element, data, layout, CONFIG)
    if (labels) this.name(Plotly, font)
    this.join(Plotly, group)
  }

  // Names are placed in pixels, and so anew whenever the plot has another size.
  async name(Plotly, font) {
    const place = async () => {
      const { width, height } = this.element._fullLayout
      const size = JSON.stringify([width, height, this.shown])
      if (this.gone || size === this.named) return
      this.named = size
      await Plotly.relayout(this.element, { annotations: placeLabels(this.element, this.labels, this.path, font) })
    }
    if (!this.named) this.element.on("plotly_afterplot", place)
    await place()
  }

  join(Plotly, group) {
    if (!group || this.group) return
    this.group = group
    if (!groups.has(group)) groups.set(group, new Set())
    groups.get(group).add(this)
    this.element.on("plotly_relayout", (change) => {
      const seen = Object.keys(change).filter((name) => name.startsWith("xaxis."))
      if (!seen.length || this.following) return
      const same = Object.fromEntries(seen.map((name) => [name, change[name]]))
      for (const other of groups.get(group)) if (other !== this) other.follow(Plotly, same)
    })
  }

  async follow(Plotly, change) {
    this.following = true
    await Plotly.relayout(this.element, change)
    this.following = false
  }

  destroy() {
    this.gone = true
    groups.get(this.group)?.delete(this)
    window.Plotly?.purge(this.element)
    this.element.remove()
  }
}

function coloured(value, colours) {
  if (typeof value === "string" && value.startsWith("@")) return colours[value.slice(1)] ?? value
  if (Array.isArray(value)) return value.map((each) => coloured(each, colours))
  if (value === null || typeof value !== "object") return value
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, colours)]))
}

function isDark(parent) {
  const probe = document.createElement("canvas").getContext("2d")
  probe.fillStyle = getComputedStyle(parent).getPropertyValue("--st-background-color").trim() || "#ffffff"
  probe.fillRect(0, 0, 1, 1)
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data
  return red + green + blue < 384
}

export default function mount({ data, parentElement }) {
  let chart = charts.get(parentElement)
  if (!chart) {
    chart = new Chart(parentElement)
    charts.set(parentElement, chart)
  }
  const call = (chart.lastCall = {})
  chart.update(data)
  return () => {
    // What changes while this script loads makes Streamlit call it twice at once and then take back the first call only.
    if (chart.lastCall !== call) return
    chart.destroy()
    charts.delete(parentElement)
  }
}

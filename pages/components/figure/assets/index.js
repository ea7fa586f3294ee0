// A Plotly figure that is updated in place: a growing curve keeps its zoom and its hover, and does not flicker.
//
// Colours come as "@name" and the font as "@font". The page replaces them from the current theme, so a change of theme
// needs no rerun. Figures of one group share their x axis: a zoom in one zooms all.

import { placeLabels } from "./labels.js"
import { enter, leave, pause } from "./turns.js"

// Streamlit serves this file below the app's base path, whatever that is.
const BASE = import.meta.url.slice(0, import.meta.url.indexOf("/_stcore/") + 1)
const BASE_TEXT_PX = 14
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset" }

const charts = new WeakMap()
const groups = new Map()
// The part of Plotly that most figures need, and the whole of it, four times as large, for the others.
const PART = "api/plotly.js"
const WHOLE = "api/plotly-whole.js"
const IN_THE_PART = new Set(["scatter", "bar", "pie"])
const libraries = new Map()

function plotly(path) {
  if (!libraries.has(path)) libraries.set(path, load(path))
  return libraries.get(path)
}

function load(path) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script")
    script.src = new URL(path, BASE)
    script.onload = () => resolve(window.Plotly)
    script.onerror = () => {
      libraries.delete(path)
      script.remove()
      reject(new Error("plotly.js could not be loaded"))
    }
    document.head.append(script)
  })
}

// Returns what has to be loaded for a figure; null: it is there. The whole stands in for the part, once it is there.
function missing({ data }) {
  if (data.every(({ type }) => IN_THE_PART.has(type))) return window.Plotly ? null : PART
  return libraries.has(WHOLE) && window.Plotly ? null : WHOLE
}

class Chart {
  constructor(parent) {
    this.parent = parent
    this.coming = parent.querySelector(".figure-coming") // says so until it is drawn
    this.element = document.createElement("div")
    this.element.setAttribute("role", "figure")
    parent.append(this.element)
  }

  update(data) {
    const wanted = JSON.stringify([data.figure, isDark(this.parent), scale()])
    if (wanted === this.wanted) return
    this.wanted = wanted
    this.data = data
    this.element.style.height = `${data.figure.layout.height}px`
    this.coming?.style.setProperty("--height", this.element.style.height)
    this.element.setAttribute("aria-label", data.alt)
    enter(this)
  }

  // Called when it is this figure's turn.
  async draw() {
    try {
      await this.drawNow()
      this.coming?.remove()
    } catch (error) {
      if (this.coming) this.coming.textContent = "This figure could not be drawn. Load the page again."
      throw error
    }
  }

  async drawNow() {
    const library = missing(this.data.figure)
    if (library) {
      await plotly(library)
      // Drawing gets a task of its own, after the one that read the library.
      await pause()
    }
    if (this.gone) return
    const { figure, palette, group } = this.data
    this.shown = this.wanted
    const Plotly = window.Plotly
    const font = getComputedStyle(this.parent).fontFamily
    const { data, layout, labels, path } = coloured(figure, { ...palette[isDark(this.parent) ? 1 : 0], font })
    for (const part of [layout, ...data.map((trace) => trace.textfont)]) enlarge(part, scale())
    this.labels = labels
    this.path = path ?? []
    await Plotly.react(this.element, data, layout, CONFIG)
    this.join(Plotly, group)
    if (!labels) return
    await pause()
    await this.name(Plotly, font)
  }

  // Names are placed in pixels, so they are placed again whenever the plot's size changes.
  async name(Plotly, font) {
    const place = async () => {
      const { width, height } = this.element._fullLayout
      const size = JSON.stringify([width, height, this.shown])
      if (this.gone || size === this.named) return
      this.named = size
      await Plotly.relayout(this.element, {
        annotations: placeLabels(this.element, this.labels, this.path, font, scale()),
      })
    }
    if (this.gone) return
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
    leave(this)
    groups.get(this.group)?.delete(this)
    window.Plotly?.purge(this.element)
    this.element.remove()
  }
}

// How much larger text is than where figures are drawn in pixels: it grows with the window.
function scale() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / BASE_TEXT_PX
}

// Heights stay: names are placed by them.
const IN_PIXELS = new Set(["size", "l", "r", "xshift"])

function enlarge(part, by) {
  if (part === null || typeof part !== "object") return
  for (const [name, value] of Object.entries(part))
    if (IN_PIXELS.has(name) && typeof value === "number") part[name] = value * by
    else enlarge(value, by)
}

function coloured(value, colours) {
  if (typeof value === "string" && value.startsWith("@")) return colours[value.slice(1)] ?? value
  if (Array.isArray(value)) return value.map((each) => coloured(each, colours))
  if (value === null || typeof value !== "object") return value
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, colours)]))
}

// Streamlit sets it with its theme.
function isDark(parent) {
  return getComputedStyle(parent).colorScheme === "dark"
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
    // A change while this script loads makes Streamlit call it twice at once, and then clean up only the first call.
    if (chart.lastCall !== call) return
    chart.destroy()
    charts.delete(parentElement)
  }
}

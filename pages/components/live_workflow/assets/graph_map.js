// A small map of a graph that does not fit: every card as a bar, and the part that is seen as a frame that can be moved.
// It is in the corner that has the fewest cards. For the keyboard and screen readers there are the steps' buttons.

import { el } from "./dom.js"

const MOST = { width: 150, height: 96 }
const PADDING = 6
const RIM_PX = 10
const LEAST_BAR_PX = 2

export class GraphMap {
  // `onMove` is given the middle of what shall be seen, in the drawing's units.
  constructor({ onMove }) {
    this.onMove = onMove
    this.canvas = el("canvas")
    this.element = el("div", { class: "graph-map", "aria-hidden": "true", hidden: true }, this.canvas)
    this.element.addEventListener("pointerdown", (event) => this.press(event))
    this.element.addEventListener("pointermove", (event) => event.buttons === 1 && this.go(event))
    this.corner = null
    this.arranged = null
  }

  hide() {
    this.element.hidden = true
    this.arranged = null
  }

  // Chooses the corner anew with the next drawing.
  settle() {
    this.corner = null
  }

  // `seen`: the part of the drawing that is seen. `colourOf` returns the colour of a cell, `frame` is
  // that of the frame.
  show(arranged, seen, colourOf, frame) {
    if (arranged !== this.arranged) {
      this.arranged = arranged
      this.scale = Math.min(MOST.width / arranged.width, MOST.height / arranged.height)
      this.corner = null
    }
    this.element.hidden = false
    if (this.corner === null) {
      this.corner = emptiestCorner(arranged, seen, this.size())
      this.element.dataset.corner = this.corner
    }
    this.paint(seen, colourOf, frame)
  }

  size() {
    const { width, height } = this.arranged
    return { width: width * this.scale + 2 * PADDING, height: height * this.scale + 2 * PADDING }
  }

  paint(seen, colourOf, frame) {
    const { width, height } = this.size()
    const { left, top, cells } = this.arranged
    const dense = devicePixelRatio
    const [across, down] = [Math.round(width * dense), Math.round(height * dense)]
    if (this.canvas.width !== across || this.canvas.height !== down) {
      Object.assign(this.canvas, { width: across, height: down })
      Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` })
    }
    const ctx = this.canvas.getContext("2d")
    ctx.setTransform(dense, 0, 0, dense, 0, 0)
    ctx.clearRect(0, 0, width, height)
    const at = (x, y) => [PADDING + (x - left) * this.scale, PADDING + (y - top) * this.scale]
    for (const cell of cells) {
      const [x, y] = at(cell.x - cell.width / 2, cell.y - cell.height / 2)
      ctx.fillStyle = colourOf(cell)
      ctx.fillRect(x, y, cell.width * this.scale, Math.max(LEAST_BAR_PX, cell.height * this.scale))
    }
    const [x, y] = at(seen.left, seen.top).map((each) => Math.max(1, each))
    const [right, bottom] = at(seen.right, seen.bottom)
    ctx.strokeStyle = frame
    ctx.lineWidth = 1.5
    ctx.strokeRect(x, y, Math.min(right, width - 1) - x, Math.min(bottom, height - 1) - y)
  }

  press(event) {
    if (event.button !== 0) return
    this.element.setPointerCapture(event.pointerId)
    this.go(event)
  }

  go(event) {
    if (!this.arranged) return
    const box = this.canvas.getBoundingClientRect()
    const { left, top } = this.arranged
    const x = (event.clientX - box.left - PADDING) / this.scale + left
    const y = (event.clientY - box.top - PADDING) / this.scale + top
    this.onMove({ x, y })
  }
}

// Returns the corner of what is seen in which a box of `size` covers the least of the cards; of equal ones the first.
export function emptiestCorner({ cells }, seen, size) {
  const [width, height] = [size.width + RIM_PX, size.height + RIM_PX]
  const covered = (box) =>
    cells.reduce((total, cell) => {
      const x = Math.min(box.right, cell.x + cell.width / 2) - Math.max(box.left, cell.x - cell.width / 2)
      const y = Math.min(box.bottom, cell.y + cell.height / 2) - Math.max(box.top, cell.y - cell.height / 2)
      return total + Math.max(0, x) * Math.max(0, y)
    }, 0)
  const corners = ["top right", "bottom right", "top left", "bottom left"].map((corner) => {
    const [down, across] = corner.split(" ")
    const left = across === "left" ? seen.left : seen.right - width
    const top = down === "top" ? seen.top : seen.bottom - height
    return { corner, area: covered({ left, right: left + width, top, bottom: top + height }) }
  })
  return corners.toSorted((a, b) => a.area - b.area)[0].corner
}

// Paints what one does with the graph while the plan's editor is open: handles, an access that is being drawn, a step
// that is being moved.

import { curve } from "./draw.js"

const DASH = [6, 4]
const HANDLE = 7
const HOT = 9 // the one under the pointer

// Paints the place at a card's side from which one draws an access.
export function drawHandle(ctx, { x, y, hot, theme }) {
  ctx.save()
  ctx.beginPath()
  ctx.arc(x, y, hot ? HOT : HANDLE, 0, 2 * Math.PI)
  ctx.fillStyle = hot ? theme.accent : theme.surface
  ctx.fill()
  ctx.lineWidth = 1.8
  ctx.strokeStyle = hot ? theme.accent : theme.muted
  ctx.stroke()
  ctx.restore()
}

// Paints an access that is not in the plan: one that is being drawn, or that Python has not heard of yet.
export function drawRope(ctx, { from, to, theme }) {
  ctx.save()
  ctx.strokeStyle = ctx.fillStyle = theme.accent
  ctx.lineWidth = 2.2
  ctx.setLineDash(DASH)
  ctx.beginPath()
  ctx.moveTo(from.x, from.y)
  curve(ctx, from, to)
  ctx.stroke()
  ctx.beginPath()
  ctx.arc(to.x, to.y, 4, 0, 2 * Math.PI)
  ctx.fill()
  ctx.restore()
}

// Marks a card as the one that would be given access, or veils it as one that cannot.
export function drawChoice(ctx, { x, y, width, height, allowed, aimed, theme }) {
  ctx.save()
  ctx.beginPath()
  ctx.roundRect(x - width / 2, y - height / 2, width, height, 10)
  if (allowed) {
    ctx.strokeStyle = theme.accent
    ctx.lineWidth = aimed ? 4 : 1.6
    ctx.stroke()
  } else {
    ctx.globalAlpha = 0.62
    ctx.fillStyle = theme.surface
    ctx.fill()
  }
  ctx.restore()
}

// Paints where a step is dropped: a bar at one side of the card beside which it goes.
export function drawDrop(ctx, { x, y, width, height, side, theme }) {
  const gap = 9
  const thick = 4
  const [dx, dy] = { left: [-1, 0], right: [1, 0], top: [0, -1], bottom: [0, 1] }[side]
  const middle = { x: x + dx * (width / 2 + gap), y: y + dy * (height / 2 + gap) }
  const [w, h] = dx ? [thick, height] : [width, thick]
  ctx.save()
  ctx.fillStyle = theme.accent
  ctx.beginPath()
  ctx.roundRect(middle.x - w / 2, middle.y - h / 2, w, h, thick / 2)
  ctx.fill()
  ctx.restore()
}

// Paints the outline of the card that is being moved.
export function drawGhost(ctx, { x, y, width, height, theme }) {
  ctx.save()
  ctx.beginPath()
  ctx.roundRect(x - width / 2, y - height / 2, width, height, 10)
  ctx.globalAlpha = 0.5
  ctx.fillStyle = theme.surface
  ctx.fill()
  ctx.globalAlpha = 1
  ctx.setLineDash(DASH)
  ctx.lineWidth = 2
  ctx.strokeStyle = theme.accent
  ctx.stroke()
  ctx.restore()
}

// Paints lines of text in a box beside the pointer; `bounds` is what is seen of the graph.
export function drawLabel(ctx, { x, y, lines, bad, bounds, theme }) {
  ctx.save()
  ctx.font = `600 12.5px ${theme.font}`
  const width = Math.max(...lines.map((line) => ctx.measureText(line).width)) + 20
  const height = 10 + 17 * lines.length
  const left = Math.max(bounds.left, Math.min(x + 16, bounds.right - width))
  const top = Math.max(bounds.top, Math.min(y + 18, bounds.bottom - height))
  ctx.beginPath()
  ctx.roundRect(left, top, width, height, 6)
  ctx.fillStyle = theme.surface
  ctx.fill()
  ctx.lineWidth = 1.2
  ctx.strokeStyle = bad ? theme.muted : theme.accent
  ctx.stroke()
  ctx.fillStyle = bad ? theme.muted : theme.text
  ctx.textBaseline = "middle"
  lines.forEach((line, index) => ctx.fillText(line, left + 10, top + 13.5 + 17 * index))
  ctx.restore()
}

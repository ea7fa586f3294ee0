// Paints the edges that an edit of the plan gains or loses.

const MARK_RADIUS = 6.5

// Returns the line style of a gained or lost edge.
export function edgeStyle(change, theme) {
  if (change === "gained") return { colour: theme.text, width: 2.4, dash: [] }
  return { colour: theme.muted, width: 1.5, dash: [6, 5] }
}

// Paints the sign on a gained or lost edge, near the step that reads.
export function drawEdgeMark(ctx, { x, y }, change, theme) {
  const { colour } = edgeStyle(change, theme)
  ctx.setLineDash([])
  ctx.beginPath()
  ctx.arc(x, y, MARK_RADIUS, 0, 2 * Math.PI)
  ctx.fillStyle = theme.surface
  ctx.fill()
  ctx.strokeStyle = colour
  ctx.lineWidth = 1.4
  ctx.stroke()
  ctx.beginPath()
  ctx.moveTo(x - 3, y)
  ctx.lineTo(x + 3, y)
  if (change === "gained") {
    ctx.moveTo(x, y - 3)
    ctx.lineTo(x, y + 3)
  }
  ctx.stroke()
}

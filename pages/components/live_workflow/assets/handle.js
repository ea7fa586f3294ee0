// How large the marks of editing are in the units of the graph: on the screen they keep their size.

const HANDLE_PX = 7
const HOT_PX = 9
// In a graph drawn very small a handle stays a small part of its card.
const MOST_OF_CARD = 1 / 7

export const onScreen = (px, scale) => px / Math.min(1, scale)

// Returns the radius of a handle; `hot`: the one under the pointer, which is larger.
export function handleRadius(hot, scale, cardHeight) {
  const most = cardHeight * MOST_OF_CARD
  return hot ? Math.min(onScreen(HOT_PX, scale), 1.5 * most) : Math.min(onScreen(HANDLE_PX, scale), most)
}

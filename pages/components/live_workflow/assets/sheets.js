// The stylesheets of a component, as part of its script, so that code that measures and paints by them never runs
// without them. A link beside the component would be fetched again at each mount, and come after a script that is there.

export const sheets = (names) => Promise.all(names.map(styles))

async function styles(name) {
  const response = await fetch(new URL(name, import.meta.url))
  if (!response.ok) throw new Error(`${name} could not be loaded: ${response.status}`)
  return new CSSStyleSheet().replace(await response.text())
}

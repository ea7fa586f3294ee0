// Where the page's modules are.
export const live = (name) => import(`../../pages/components/live_workflow/assets/${name}`)
export const figure = (name) => import(`../../pages/components/figure/assets/${name}`)
export const tour = (name) => import(`../../pages/components/tour/assets/${name}`)

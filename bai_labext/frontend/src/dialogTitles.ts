/** Whether `title` is the text `template` with any text in place of `placeholder`. */
export function isTitleOf(template: string, placeholder: string, title: string): boolean {
  const [begin = '', end] = template.split(placeholder);
  return end === undefined
    ? title === template
    : title.startsWith(begin) && title.endsWith(end) && title.length > begin.length + end.length;
}

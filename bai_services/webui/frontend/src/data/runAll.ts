/**
 * Run a function for every item, at most `parallel` at a time; continue after an error.
 *
 * @param onProgress called after each item with the number of items that are done
 * @returns the items for which the function failed, each with its error
 */
export async function runAll<T>(
  items: readonly T[],
  parallel: number,
  run: (item: T) => Promise<unknown>,
  onProgress: (count: number) => void = () => undefined
): Promise<{ item: T; error: Error }[]> {
  const failures: { item: T; error: Error }[] = [];
  // The workers share one iterator, so each item is taken once.
  const rest = items.values();
  let count = 0;
  const work = async () => {
    for (const item of rest) {
      try {
        await run(item);
      } catch (error) {
        failures.push({ item, error: error as Error });
      }
      count += 1;
      onProgress(count);
    }
  };
  await Promise.all(Array.from({ length: parallel }, work));
  return failures;
}

import { useState } from 'react';
import { api, unwrap } from './client';
import type { EntityPath, Item } from './entities';
import { queries } from './queries';

/** Result of a bulk change; `failed` has the server's message for each rejected change. */
export interface BulkResult {
  done: string[];
  failed: { key: string; message: string }[];
}

/** Change to make to each object: set fields, or delete it. */
export type BulkChange = Item | 'delete';

const oneOf = (path: EntityPath) => `${path}/{key}` as '/users/{key}';

function changeOne(path: EntityPath, key: string, change: BulkChange): Promise<unknown> {
  const params = { path: { key } };
  return change === 'delete'
    ? unwrap(api.DELETE(oneOf(path), { params }))
    : unwrap(api.PATCH(oneOf(path), { params, body: change as never }));
}

/** Change objects one after the other. If the server rejects a change, continue with the next. */
export async function changeAll(
  path: EntityPath,
  keys: readonly string[],
  change: BulkChange,
  onProgress: (count: number) => void
): Promise<BulkResult> {
  const result: BulkResult = { done: [], failed: [] };
  for (const key of keys) {
    try {
      await changeOne(path, key, change);
      result.done.push(key);
    } catch (error) {
      result.failed.push({ key, message: (error as Error).message });
    }
    onProgress(result.done.length + result.failed.length);
  }
  return result;
}

export function useBulkChange(path: EntityPath) {
  const [count, setCount] = useState<number>();
  const [result, setResult] = useState<BulkResult>();
  const run = async (keys: readonly string[], change: BulkChange) => {
    setResult(undefined);
    setCount(0);
    const found = await changeAll(path, keys, change, setCount);
    setCount(undefined);
    setResult(found);
    await queries.invalidateQueries({ queryKey: ['entities'] });
    return found;
  };
  return { count, isPending: count !== undefined, result, run, clear: () => setResult(undefined) };
}

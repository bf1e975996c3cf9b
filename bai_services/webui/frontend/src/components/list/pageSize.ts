import { Stored, useStored } from '../../data/stored';

export const PAGE_SIZES = [10, 20, 50];
export const DEFAULT_PAGE_SIZE = 20;

export const readPageSize = (stored: unknown): number =>
  PAGE_SIZES.find(size => size === stored) ?? DEFAULT_PAGE_SIZE;

const pageSize = new Stored('bai-page-size', readPageSize);

/** The rows per page if the URL does not set them: the last choice in this browser, or 20. */
export const currentPageSize = () => pageSize.get();
export const usePageSize = () => useStored(pageSize);
export const keepPageSize = (size: number) => pageSize.set(readPageSize(size));

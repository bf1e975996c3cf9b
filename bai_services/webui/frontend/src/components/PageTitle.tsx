import type { ReactNode } from 'react';

/** The heading of a page, with the look of AntD's title of level 3. */
export const PageTitle = ({ children }: { children: ReactNode }) => (
  <h3 className="bai-page-title">{children}</h3>
);

import { Skeleton } from 'antd';

/** Shown in place of a page whose script is still loading. */
export function PagePending() {
  return <Skeleton active />;
}

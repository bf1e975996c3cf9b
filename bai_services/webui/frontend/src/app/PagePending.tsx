import { Skeleton } from 'antd';

/** In place of a page whose script is still loading. */
export function PagePending() {
  return <Skeleton active />;
}

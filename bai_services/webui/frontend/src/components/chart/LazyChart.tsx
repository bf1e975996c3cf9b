import { lazy, Suspense, type ComponentProps } from 'react';
import { Skeleton } from 'antd';
import { loadScript } from '../../data/scripts';

const Chart = lazy(() =>
  loadScript(() => import('./Chart')).then(module => ({ default: module.Chart }))
);

/** A chart whose library is loaded when it is first shown; see `Chart`. */
export function LazyChart(props: ComponentProps<typeof Chart>) {
  return (
    <Suspense fallback={<Skeleton.Node active style={{ height: props.height, width: '100%' }} />}>
      <Chart {...props} />
    </Suspense>
  );
}

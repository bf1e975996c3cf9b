import type { ReactNode } from 'react';
import { CardMenu } from './CardMenu';

interface BoardCardProps {
  title: string;
  /** Links and buttons on the right of the title. */
  extra?: ReactNode;
  children: ReactNode;
}

/**
 * A card of a `Board`; outside of a board it has no menu. AntD's `Card` is not used, because it
 * would load the code of AntD's `Tabs`.
 */
export function BoardCard({ title, extra, children }: BoardCardProps) {
  return (
    <section className="bai-card" aria-label={title}>
      <div className="bai-card-head">
        <h2 className="bai-card-title">{title}</h2>
        <div className="bai-card-extra">
          {extra}
          <CardMenu title={title} />
        </div>
      </div>
      <div className="bai-card-body">{children}</div>
    </section>
  );
}

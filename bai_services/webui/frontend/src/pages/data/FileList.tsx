import { useRef } from 'react';
import { FileOutlined, FolderFilled } from '@ant-design/icons';
import { Button, Checkbox, Empty, Skeleton } from 'antd';
import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatTime } from '../../components/time';
import {
  FILES_PER_PAGE,
  filesQuery,
  type Directory,
  type FileEntry
} from '../../data/folders/files';
import { FileActions } from './FileActions';
import type { FileSort } from './search';
import { UserText } from '../../components/UserText';
import { visible } from '../../i18n/userText';
import { replacesData } from '../../data/connection';

const ROW_PIXELS = 44;
const SORTS = ['name', 'size', 'modified_at'] as const;

interface FileListProps {
  directory: Directory;
  canWrite: boolean;
  find: string;
  sort: FileSort;
  onSort: (sort: FileSort) => void;
  /** Selected names with their types. */
  selected: ReadonlyMap<string, string>;
  onSelect: (selected: ReadonlyMap<string, string>) => void;
  /** Open a directory. */
  onOpen: (name: string) => void;
  /** Show a file. */
  onShow: (name: string) => void;
}

/**
 * The entries of a directory. Only rows in or near the viewport are rendered. Only the pages of
 * these rows, and the first page, are loaded.
 */
export function FileList(props: FileListProps) {
  const { t } = useTranslation();
  const list = { sort: props.sort, name: props.find };
  const first = useQuery({
    ...filesQuery(props.directory, { ...list, page: 0 }),
    placeholderData: keepPreviousData
  });
  const total = first.data?.total ?? 0;
  if (replacesData(first.error, first.data)) {
    return <ErrorNotice error={first.error} onRetry={() => void first.refetch()} />;
  }
  if (!first.data) {
    return <Skeleton active />;
  }
  return (
    <>
      <div
        role="table"
        aria-label={t('data.files')}
        aria-rowcount={total + 1}
        className="bai-files"
      >
        <FileHeader sort={props.sort} onSort={props.onSort} />
        {total > 0 && <FileRows {...props} total={total} />}
      </div>
      {total === 0 && (
        <Empty
          image={Empty.PRESENTED_IMAGE_SIMPLE}
          description={t(
            props.find ? 'data.no-file-found' : props.canWrite ? 'data.drop-here' : 'data.no-files'
          )}
        />
      )}
      <div aria-live="polite">{t('data.entries', { count: total })}</div>
    </>
  );
}

function FileHeader({ sort, onSort }: Pick<FileListProps, 'sort' | 'onSort'>) {
  const { t } = useTranslation();
  const orderOf = (field: string) =>
    sort === field ? 'ascending' : sort === `-${field}` ? 'descending' : 'none';
  return (
    <div role="row" className="bai-file bai-file-head">
      <span role="columnheader" aria-label={t('data.selection')} />
      {SORTS.map(field => (
        <span key={field} role="columnheader" aria-sort={orderOf(field)}>
          <Button
            type="text"
            size="small"
            onClick={() => onSort(sort === field ? (`-${field}` as const) : field)}
          >
            {t(`data.file-${field}`)}
            {orderOf(field) === 'ascending' && ' ↑'}
            {orderOf(field) === 'descending' && ' ↓'}
          </Button>
        </span>
      ))}
      <span role="columnheader" aria-label={t('data.file-actions')} />
    </div>
  );
}

function FileRows(props: FileListProps & { total: number }) {
  const viewport = useRef<HTMLDivElement>(null);
  // The rule warns because the virtualizer's functions stay the same while their results change, so
  // memoized results would be stale. This component does not pass the functions on, so no other
  // component memoizes their results.
  // eslint-disable-next-line react-hooks/incompatible-library
  const rows = useVirtualizer({
    count: props.total,
    getScrollElement: () => viewport.current,
    estimateSize: () => ROW_PIXELS,
    overscan: 10
  });
  const items = rows.getVirtualItems();
  const pages = [...new Set(items.map(({ index }) => Math.floor(index / FILES_PER_PAGE)))];
  const loaded = useQueries({
    queries: pages.map(page =>
      filesQuery(props.directory, { sort: props.sort, name: props.find, page })
    )
  });
  const entryAt = (index: number) => {
    const page = loaded[pages.indexOf(Math.floor(index / FILES_PER_PAGE))];
    return page?.data?.items[index % FILES_PER_PAGE];
  };
  return (
    <div ref={viewport} role="rowgroup" className="bai-files-viewport">
      <div role="presentation" style={{ height: rows.getTotalSize(), position: 'relative' }}>
        {items.map(({ index, start }) => (
          <div
            key={index}
            role="row"
            aria-rowindex={index + 2}
            className="bai-file"
            style={{ position: 'absolute', top: start, height: ROW_PIXELS }}
          >
            <FileRow {...props} entry={entryAt(index)} />
          </div>
        ))}
      </div>
    </div>
  );
}

function FileRow(props: FileListProps & { entry: FileEntry | undefined }) {
  const { t, i18n } = useTranslation();
  const { entry, directory, selected } = props;
  if (!entry) {
    return <span role="cell">…</span>;
  }
  const isDirectory = entry.type === 'directory';
  const toggle = (isSelected: boolean) => {
    const changed = new Map(selected);
    if (isSelected) {
      changed.set(entry.name, entry.type);
    } else {
      changed.delete(entry.name);
    }
    props.onSelect(changed);
  };
  return (
    <>
      <span role="cell">
        <Checkbox
          checked={selected.has(entry.name)}
          onChange={({ target }) => toggle(target.checked)}
          aria-label={t('data.select', { name: entry.name })}
        />
      </span>
      <span role="cell" className="bai-file-name" title={visible(entry.name)}>
        {isDirectory ? (
          <Button type="link" icon={<FolderFilled />} onClick={() => props.onOpen(entry.name)}>
            <UserText text={entry.name} />
          </Button>
        ) : (
          <Button
            type="link"
            icon={<FileOutlined />}
            onClick={() => props.onShow(entry.name)}
            disabled={entry.type !== 'file'}
          >
            <UserText text={entry.name} />
          </Button>
        )}
      </span>
      <span role="cell">{!isDirectory && formatBytes(entry.size, i18n.language)}</span>
      <span role="cell">{formatTime(entry.modified_at, i18n.language)}</span>
      <span role="cell">
        <FileActions directory={directory} entry={entry} canWrite={props.canWrite} />
      </span>
    </>
  );
}
